"""GRPO's and ORPO's losses and gradients as TRL computes them, in float64 (ORPO's odds ratio: TRL casts to float32).

Run: python make_policy_losses.py > policy-losses.json     (trl 1.13.0, torch 2.13.0)

GRPO: the trainer's own `_compute_loss` runs on a stand-in for the trainer whose per-token log-probabilities are prepared, so
that the loss and its gradient with respect to them come from TRL's lines: the clipped surrogate with both ranges, the k3
penalty, and its three ways to take means ("bnpo": over tokens; "grpo": over sequences of their means; "luspo" and RLOO's
trainer: over sequences of their sums).

RLOO: TRL clips the ratio of whole sequences; before any update, where that ratio is 1, its gradient is that of the plain
policy gradient with sums over tokens, which is what is recorded.

ORPO: `odds_ratio_loss` on mean log-probabilities; the loss is NLL(chosen) − its losses, as in `get_batch_loss_metrics`.
"""

import json
import sys
import warnings
from collections import defaultdict
from types import SimpleNamespace

import torch
import transformers
import trl
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

warnings.filterwarnings("ignore")
from trl.experimental.orpo.orpo_trainer import ORPOTrainer

SEED = 20261122
accelerator = SimpleNamespace(
    device="cpu", num_processes=1, gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x
)


def trainer(leaf, **options):
    class Fake(SimpleNamespace):
        def __getattr__(self, name):  # whatever else a release asks of the trainer is off
            if name.startswith("__"):
                raise AttributeError(name)
            return False

    return Fake(
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        _get_per_token_logps_and_entropies=lambda *_, **__: (leaf, torch.zeros_like(leaf), None),
        _metrics={"train": defaultdict(list)},
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        current_gradient_accumulation_steps=1,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        **options,
    )


def inputs(mask, **more):
    rows, columns = mask.shape
    nothing = torch.zeros(rows, 0, dtype=torch.int64)
    return {
        "prompt_ids": nothing, "prompt_mask": nothing, "completion_ids": torch.zeros(rows, columns, dtype=torch.int64),
        "completion_mask": mask, **more,
    }


def draw(generator, rows, columns, spread=3.0):
    return -spread * torch.rand(rows, columns, generator=generator, dtype=torch.float64) - 0.01


def grpo(name, lengths, advantages, normalizer, low=0.2, high=0.2, beta=0.0, moved=0.6):
    generator = torch.Generator().manual_seed(SEED + len(cases))
    rows, columns = len(lengths), max(lengths)
    mask = (torch.arange(columns)[None, :] < torch.tensor(lengths)[:, None]).to(torch.float64)
    old = draw(generator, rows, columns) * mask
    shift = moved * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    policy = torch.clamp(old + shift, max=-0.001) * mask
    reference = draw(generator, rows, columns) * mask
    leaf = policy.clone().requires_grad_(True)
    kind = {"token": "bnpo", "sequence": "grpo", "none": "luspo"}[normalizer]
    subject = trainer(leaf, loss_type=kind, epsilon_low=low, epsilon_high=high, beta=beta)
    given = inputs(
        mask, advantages=torch.tensor(advantages, dtype=torch.float64), old_per_token_logps=old, ref_per_token_logps=reference
    )
    loss = GRPOTrainer._compute_loss(subject, None, given)
    loss.backward()
    cases.append(
        {
            "name": name, "loss": "grpo", "lengths": lengths, "normalizer": normalizer, "clipRange": low,
            "clipRangeHigher": high, "klLossCoefficient": beta, "advantages": advantages, "policy": policy.tolist(),
            "old": old.tolist(), "reference": reference.tolist(), "value": loss.item(), "gradient": leaf.grad.tolist(),
        }
    )


def rloo(name, lengths, advantages):
    generator = torch.Generator().manual_seed(SEED + len(cases))
    rows, columns = len(lengths), max(lengths)
    mask = (torch.arange(columns)[None, :] < torch.tensor(lengths)[:, None]).to(torch.float64)
    policy = draw(generator, rows, columns) * mask
    leaf = policy.clone().requires_grad_(True)
    subject = trainer(leaf, epsilon_low=0.2, epsilon_high=0.2)
    given = inputs(mask, advantages=torch.tensor(advantages, dtype=torch.float64), old_logps=policy.sum(1))
    RLOOTrainer._compute_loss(subject, None, given).backward()
    cases.append(
        {
            "name": name, "loss": "rloo", "lengths": lengths, "normalizer": "none", "advantages": advantages,
            "policy": policy.tolist(), "gradient": leaf.grad.tolist(),
        }
    )


def orpo(name, lengths, weight):
    generator = torch.Generator().manual_seed(SEED + len(cases))
    rows, columns = len(lengths), max(lengths)
    mask = torch.arange(columns)[None, :] < torch.tensor(lengths)[:, None]
    policy = draw(generator, rows, columns) * mask
    leaf = policy.clone().requires_grad_(True)
    means = (leaf * mask).sum(1) / mask.sum(1)
    pairs = rows // 2
    subject = SimpleNamespace(beta=weight, accelerator=accelerator)
    losses, _, _, _, log_odds = ORPOTrainer.odds_ratio_loss(subject, means[:pairs], means[pairs:])
    loss = (-means[:pairs] - losses).mean()
    loss.backward()
    cases.append(
        {
            "name": name, "loss": "orpo", "lengths": lengths, "lambda": weight, "policy": policy.tolist(),
            "value": loss.item(), "logOdds": log_odds.item(), "gradient": leaf.grad.tolist(),
        }
    )


cases = []
grpo("clipped surrogate, mean over tokens", [3, 5, 1, 4], [0.7, -0.4, 1.2, -0.9], "token")
grpo("clipped surrogate, mean over sequences", [3, 5, 1, 4], [0.7, -0.4, 1.2, -0.9], "sequence")
grpo("clipped surrogate, sums of sequences", [3, 5, 1, 4], [0.7, -0.4, 1.2, -0.9], "none")
grpo("clip higher", [4, 4, 2], [1.0, 0.5, -1.0], "token", low=0.2, high=0.28)
grpo("a narrow range", [5, 2], [-1.5, 1.5], "sequence", low=0.05, high=0.1)
grpo("k3 to the baseline, mean over tokens", [3, 5, 1, 4], [0.7, -0.4, 1.2, -0.9], "token", beta=0.04)
grpo("k3 to the baseline, mean over sequences", [2, 6, 3], [0.1, -0.4, 0.3], "sequence", beta=0.5)
rloo("rloo before any update", [3, 5, 1, 4], [0.7, -0.4, 1.2, -0.9])
orpo("orpo", [3, 5, 1, 4, 2, 5], 0.1)
orpo("orpo, the odds alone count much", [2, 2, 6, 1], 1.5)

versions = {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
json.dump({"versions": versions, "seed": SEED, "cases": cases}, sys.stdout, indent=1)
