"""PPO from rewards and values to gradients, computed in another way than ours: plain PyTorch in float64, with autograd.

Run: python make_ppo.py > ppo.json     (torch 2.13.0)

TRL 1.13.0, whose values the other losses are held to, has no PPO trainer, and of TRL 0.11.4, stable-baselines3, tianshou and
torchrl, which have one, none could be installed where this was made. So these are no values of a named library. What makes them
a check is that each is written from another form of its definition:

- advantages: not the recursion but the sum that it solves, A_t = sum over l of (gamma lambda)^l delta_{t+l} (arXiv 1506.02438,
  equation 16), as a product with the matrix of these powers; returns are A + V.
- the surrogate: not the minimum of two products but the bound on the side that pays, min(rho, 1 + e) A where A >= 0 and
  max(rho, 1 - e) A where A < 0, which equals it.
- values: the error at V where V moved no further than the range or where its error is the larger one, and else at the bound.
"""

import json
import sys

import torch

SEED = 20261122
torch.set_default_dtype(torch.float64)


def advantages_of(rewards, values, gamma, lam):
    """rewards, values [T]: of one path of tokens, after which nothing comes."""
    length = len(rewards)
    following = torch.cat([values[1:], torch.zeros(1)])
    deltas = rewards + gamma * following - values
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    powers = torch.where(distance >= 0, (gamma * lam) ** distance.clamp(min=0).double(), 0.0)
    return powers @ deltas


def surrogate(ratio, advantages, low, high):
    bound = torch.where(advantages >= 0, torch.clamp(ratio, max=1 + high), torch.clamp(ratio, min=1 - low))
    return -bound * advantages


def value_error(values, old, returns, reach):
    plain = (values - returns) ** 2
    if reach == 0:
        return plain
    bound = old + torch.sign(values - old) * reach
    at_bound = (bound - returns) ** 2
    is_inside = (values - old).abs() <= reach
    return torch.where(is_inside | (plain >= at_bound), plain, at_bound)


def case(name, lengths, gamma, lam, low=0.2, high=0.2, reach=0.2, coefficient=0.5, normalise=True, moved=0.5):
    generator = torch.Generator().manual_seed(SEED + len(cases))
    draw = lambda count: torch.randn(count, generator=generator)
    paths = []
    for length in lengths:
        rewards = 0.1 * draw(length)
        rewards[-1] += torch.rand(1, generator=generator).item() * 2 - 0.5
        old_values, old = 0.7 * draw(length), -2 * torch.rand(length, generator=generator) - 0.05
        advantages = advantages_of(rewards, old_values, gamma, lam)
        paths.append(
            {
                "rewards": rewards, "oldValues": old_values, "old": old, "advantages": advantages,
                "returns": advantages + old_values, "policy": torch.clamp(old + moved * draw(length), max=-0.001),
                "values": old_values + 0.4 * draw(length),
            }
        )
    joined = {key: torch.cat([path[key] for path in paths]) for key in paths[0]}
    advantages = joined["advantages"]
    if normalise:
        advantages = (advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-8)
    policy, values = joined["policy"].clone().requires_grad_(), joined["values"].clone().requires_grad_()
    policy_loss = surrogate(torch.exp(policy - joined["old"]), advantages, low, high).mean()
    value_loss = value_error(values, joined["oldValues"], joined["returns"], reach).mean()
    (policy_loss + coefficient * value_loss).backward()
    cases.append(
        {
            "name": name, "gamma": gamma, "gaeLambda": lam, "clipRange": low, "clipRangeHigher": high, "valueClipRange": reach,
            "valueCoefficient": coefficient, "normalize": normalise,
            "paths": [{key: value.tolist() for key, value in path.items()} for path in paths],
            "policyLoss": policy_loss.item(), "valueLoss": value_loss.item(),
            "policyGradient": policy.grad.tolist(), "valueGradient": values.grad.tolist(),
        }
    )


cases = []
case("the paper's settings", [4, 7, 1, 5], gamma=1.0, lam=0.95)
case("rewards to the end, values not clipped", [3, 6], gamma=1.0, lam=1.0, reach=0)
case("single steps, a discount", [5, 5, 2], gamma=0.9, lam=0.0)
case("a narrow range, clipped higher, advantages as they are", [6, 3, 8], gamma=0.99, lam=0.9, low=0.1, high=0.28, normalise=False)
case("far from where it began", [9, 4, 6], gamma=1.0, lam=0.95, moved=2.0, reach=0.05, coefficient=1.0)

json.dump({"versions": {"torch": torch.__version__}, "seed": SEED, "cases": cases}, sys.stdout, indent=1)
