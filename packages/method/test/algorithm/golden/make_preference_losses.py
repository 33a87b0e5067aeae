"""DPO and IPO losses and gradients as TRL computes them, in float64.

Run: python make_preference_losses.py > preference-losses.json     (trl 1.13.0, torch 2.13.0)

TRL's trainer turns logits into per-token log-probabilities and those into a loss inside one method. The method is
run here as it is, on a stand-in for the trainer, with its log-softmax replaced by prepared per-token
log-probabilities, so that both the loss and its gradient with respect to them come from TRL's own lines.

TRL's IPO always divides by the number of tokens. Its label smoothing of the plain sigmoid loss lives in the "aot"
type, which for a single pair is that loss; so the smoothed values are means over single-pair calls.
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace

import torch
import transformers
import trl
from trl.trainer import dpo_trainer

SEED = 20261120


def run(table, baseline, lengths, loss_type, beta, smoothing):
    """table, baseline: [2B, T] per-token log-probabilities, chosen rows first. Returns loss and gradient."""
    rows, columns = table.shape
    leaf = table.clone().requires_grad_(True)
    prepared = iter([leaf.clone(), baseline.clone()])
    dpo_trainer.selective_log_softmax = lambda logits, labels: next(prepared)
    mask = torch.zeros(rows, columns + 1, dtype=torch.int64)
    for row, length in enumerate(lengths):
        mask[row, 1 : 1 + length] = 1
    logits = torch.zeros(rows, columns + 1, 4, dtype=torch.float64)
    model = SimpleNamespace(training=True)

    class Fake:
        def __call__(self, **_):
            return SimpleNamespace(logits=logits, aux_loss=None)

        training = True
        is_gradient_checkpointing = False

    accelerator = SimpleNamespace(
        device="cpu", gather_for_metrics=lambda x: x, gather=lambda x: x, unwrap_model=lambda x: x
    )
    trainer = SimpleNamespace(
        accelerator=accelerator, model=Fake(), ref_model=Fake(), aux_loss_enabled=False, ld_alpha=None,
        precompute_ref_logps=False, f_divergence_type="reverse_kl", loss_types=[loss_type], loss_weights=[1.0],
        beta=beta, label_smoothing=smoothing, use_weighting=False, _metrics={"train": defaultdict(list)},
        _total_train_tokens=0, _tp_size=1,
        args=SimpleNamespace(gradient_checkpointing=False, gradient_checkpointing_kwargs=None),
    )
    dpo_trainer.is_peft_model = lambda _: False
    inputs = {
        "input_ids": torch.zeros(rows, columns + 1, dtype=torch.int64),
        "attention_mask": torch.ones(rows, columns + 1, dtype=torch.int64),
        "completion_mask": mask,
    }
    loss = dpo_trainer.DPOTrainer._compute_loss(trainer, Fake(), inputs, False)
    loss.backward()
    return loss.item(), leaf.grad


def case(name, loss, lengths, beta, smoothing=0.0, normalize=False, spread=1.0):
    generator = torch.Generator().manual_seed(SEED + len(cases))
    rows, columns = len(lengths), max(1, max(lengths))
    draw = lambda: -spread * torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 3 - 0.01
    keep = torch.arange(columns)[None, :] < torch.tensor(lengths)[:, None]
    table, baseline = draw() * keep, draw() * keep
    pairs = rows // 2
    if loss == "dpo" and smoothing:
        total, gradient = 0.0, torch.zeros_like(table)
        for pair in range(pairs):
            pick = [pair, pairs + pair]
            value, part = run(table[pick], baseline[pick], [lengths[i] for i in pick], "aot", beta, smoothing)
            total += value / pairs
            gradient[pick] = part / pairs
    else:
        kind = {("dpo", False): "sigmoid", ("dpo", True): "sigmoid_norm", ("ipo", True): "ipo"}[loss, normalize]
        total, gradient = run(table, baseline, lengths, kind, beta, 0.0)
    cases.append(
        {
            "name": name, "loss": loss, "beta": beta, "labelSmoothing": smoothing, "lengthNormalize": normalize,
            "lengths": lengths, "tester": table.tolist(), "baseline": baseline.tolist(),
            "value": total, "gradient": gradient.tolist(),
        }
    )


cases = []
case("dpo", "dpo", [3, 5, 1, 4, 2, 5], 0.1)
case("dpo, large beta", "dpo", [2, 2, 3, 1], 1.5, spread=4.0)
case("dpo, label smoothing", "dpo", [3, 5, 1, 4, 2, 5], 0.25, smoothing=0.1)
case("dpo, per token", "dpo", [3, 5, 1, 4, 2, 5], 0.1, normalize=True)
case("dpo, per token, an empty continuation", "dpo", [3, 0, 1, 4], 0.1, normalize=True)
case("ipo, per token", "ipo", [3, 5, 1, 4, 2, 5], 0.1, normalize=True)
case("ipo, per token, an empty continuation", "ipo", [0, 5, 2, 4], 0.05, normalize=True)
# One token each: the mean over tokens and the sum are the same number, so this is TRL's word on the summed form.
case("ipo, single tokens", "ipo", [1, 1, 1, 1, 1, 1], 0.3, normalize=True)
cases[-1]["lengthNormalize"] = False

versions = {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
json.dump({"versions": versions, "seed": SEED, "cases": cases}, sys.stdout, indent=1)
