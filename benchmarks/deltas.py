"""How fast is a switch between tasks, next to peft's adapters and reloading? Interleaved, ratios.

Each round switches once with every method, in an order that changes from round to round, between
two tasks of MiniLM: `DeltaStore.switch`, peft's `set_adapter` (SHiRA with the same differences,
LoRA of rank 8) and `load_state_dict` of the whole model. Printed is the time over that of the
store: the median over rounds of the ratio within a round, with the 95% interval of that median.

A switch of adapters leaves work for every forward pass, which adds the adapter to the weights. So a
second table has switch and answer together, for a batch of texts.

    python benchmarks/deltas.py [--keep 2000 10000] [--rounds 60] [--quick]
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from scipy.stats import binom

import mirrormargin as mm
from mirrormargin.integrations.peft import to_shira
from mirrormargin.models import PretrainedEncoder

TASKS = ("first", "second")
BATCH, LENGTH = 8, 64
Switch = Callable[[str], object]


def make_deltas(base: torch.nn.Module, keep: int) -> dict[str, mm.SparseDelta]:
    """Two tasks that change the linear layers, and have a head each."""
    deltas = {}
    for task in TASKS:
        model = copy.deepcopy(base)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, torch.nn.Linear):
                    module.weight.add_(torch.randn_like(module.weight) * 1e-2)
        deltas[task] = mm.SparseDelta.extract(model, base, keep=keep, whole=["head.*"])
    return deltas


def make_switches(
    base: PretrainedEncoder, deltas: dict[str, mm.SparseDelta]
) -> dict[str, tuple[Switch, torch.nn.Module]]:
    """From a method to how it switches, and to the model that is switched."""
    import peft

    served = copy.deepcopy(base)
    store = mm.DeltaStore(served)
    for task, delta in deltas.items():
        store.add(task, delta)
    states = {}
    for task in TASKS:
        with store.use(task):
            states[task] = {name: one.clone() for name, one in served.state_dict().items()}
    reloaded = copy.deepcopy(base)
    with tempfile.TemporaryDirectory() as folder:
        for task, delta in deltas.items():
            to_shira(delta, Path(folder) / task, base)
        shira = peft.PeftModel.from_pretrained(
            copy.deepcopy(base), Path(folder) / TASKS[0], adapter_name=TASKS[0]
        )
        shira.load_adapter(Path(folder) / TASKS[1], adapter_name=TASKS[1])
    linear = [
        name
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "head"
    ]
    config = peft.LoraConfig(r=8, target_modules=linear, modules_to_save=["head"])
    lora = peft.get_peft_model(copy.deepcopy(base), config, adapter_name=TASKS[0])
    lora.add_adapter(TASKS[1], config)
    return {
        "DeltaStore": (store.switch, served),
        "peft SHiRA": (shira.set_adapter, shira.eval()),
        "peft LoRA": (lora.set_adapter, lora.eval()),
        "load_state_dict": (lambda task: reloaded.load_state_dict(states[task]), reloaded),
    }


def measure(
    switches: dict[str, tuple[Switch, torch.nn.Module]], rounds: int, ids: torch.Tensor | None
) -> None:
    """Time switches, with an answer to these ids after each if there are any."""
    times: dict[str, list[float]] = {label: [] for label in switches}
    labels = list(switches)
    with torch.no_grad():
        for k in range(-2, rounds):  # two to warm up
            shift = k % len(labels)
            for label in labels[shift:] + labels[:shift]:
                switch, model = switches[label]
                start = time.perf_counter()
                switch(TASKS[k % 2])
                if ids is not None:
                    model(ids)
                if k >= 0:
                    times[label].append(time.perf_counter() - start)
    base = times["DeltaStore"]
    what = "switch" if ids is None else f"switch and {len(ids)} texts of {ids.shape[1]} tokens"
    print(f"  {what}: DeltaStore {statistics.median(base) * 1e3:.2f} ms, {rounds} rounds")
    for label in labels[1:]:
        ratios = sorted(b / a for a, b in zip(base, times[label], strict=True))
        low = max(int(binom.ppf(0.025, rounds, 0.5)) - 1, 0)
        print(
            f"    {label:16} {statistics.median(ratios):6.2f} of its time"
            f" [{ratios[low]:.2f}, {ratios[-1 - low]:.2f}]",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", type=int, nargs="+", default=[2000, 10_000])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="10 rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")  # peft's and torch's notices about sparse tensors
    rounds = 10 if arguments.quick else arguments.rounds
    torch.manual_seed(0)
    base = PretrainedEncoder("minilm").eval()
    ids = torch.randint(1000, 20_000, (BATCH, LENGTH))
    ids[:, 0] = 101
    for keep in arguments.keep:
        deltas = make_deltas(base, keep)
        delta = deltas[TASKS[0]]
        print(f"\n{keep:,} differences of MiniLM, {delta.num_bytes:,} bytes a file")
        switches = make_switches(base, deltas)
        measure(switches, rounds, None)
        measure(switches, rounds, ids)


if __name__ == "__main__":
    main()
