r"""Mirror descent with a constant rate, started in a cone around a locally optimal direction.

    C(mu, R) = { W : D(W_mm / |W_mm|_p, W / |W|_p) <= mu,  |W|_p >= R }

For the selection alpha that a run from a random start reached, local ones preferred: the slope of
the loss towards W_mm(alpha) at random W of many cones; descent from a random W of one cone; and the
same for ever, in log-time. Which cone depends on the problem, for a token of a higher score may lie
close behind the support. If it trails the selected one by 1 + delta where the support trails by 1,
its weight is beyond that of the support only if R delta is large and mu / delta^2 is small.

Arrays (S = one for each seed and p; M widths, N radii, R recorded decades):
    mu (M,), radius (N,)       shared; radii in units of |W_mm|_p: the lead in logits
    p, seed (S,)
    kind (S,)                  "global" or "local"
    delta (S,)                 at most 1
    descends (S, M, N)         share of random W of a cone with <grad L(W), W_mm> < 0
    start_mu, start_radius (S,)    of the cone where the descent starts
    start_descends (S,)        the share of that cone
    loss_rise (S,)             largest change of log L in a step of the descent
    log10_k, divergence, norm (S, R)    of the flow from the same start
    stays (S,)                 whether the flow still selects alpha in the end
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.experiment import Arrays, Experiment, Settings
from mirrormargin.claims.experiments.seeds import list_seeds

__all__ = ["EXPERIMENT"]

MU = (0.003, 0.01, 0.03, 0.1, 0.3)
RADIUS = (5.0, 10.0, 20.0, 40.0)
LEAD, WIDTH = 10.0, 16.0  # R delta, and delta / sqrt(2 mu)
NUM_STEPS = 200


def split(settings: Settings) -> list[tuple[float, int]]:
    return [(p, seed) for p in settings["p"] for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    p, seed = part
    problem = mm.synthetic.unit_sphere(seed)
    rng = np.random.default_rng([seed, int(1000 * p)])
    selection, kind = _reach_selection(mm, problem, p, seed)
    target = mm.solve_attention_svm(
        problem.tokens, problem.queries, selection, p, 1e-11, compiled=False
    ).W
    size = float(mm.LpPotential(p).norm(target))

    def find_share(mu: float, radius: float) -> float:
        drawn = _draw_directions(target, p, mu, settings["num_draws"], rng)
        slopes = [np.vdot(problem.scaled_gradient(radius * size * V)[0], target) for V in drawn]
        return float(np.mean(np.array(slopes) < 0))

    descends = [[find_share(mu, radius) for radius in RADIUS] for mu in MU]
    delta = _find_slack(problem, selection, target)
    radius, mu = LEAD / delta, min(0.01, (delta / WIDTH) ** 2 / 2)
    start = radius * size * _draw_directions(target, p, mu, 1, rng)[0]
    # Long enough to outgrow the start: k = 10^decades brings the lead to about log k.
    decades = max(settings["decades"], 30 * radius / np.log(10))
    flow = mm.mirror_flow(
        problem,
        p,
        decades,
        init=start,
        target=target,
        record=np.linspace(0.0, decades, settings["num_points"]),
    )
    descent = mm.train_attention(
        problem,
        p,
        step_rule="constant",
        lr=settings["lr"],
        num_steps=NUM_STEPS,
        init=start,
        record=np.arange(NUM_STEPS + 1),
        target=None,
        threads=1,
    )
    return {
        "mu": np.array(MU),
        "radius": np.array(RADIUS),
        "p": np.array([p]),
        "seed": np.array([seed]),
        "kind": np.array([kind]),
        "descends": np.array([descends]),
        "delta": np.array([delta]),
        "start_mu": np.array([mu]),
        "start_radius": np.array([radius]),
        "start_descends": np.array([find_share(mu, radius)]),
        "loss_rise": np.diff(descent.log_loss[0, 0, 0]).max(keepdims=True),
        "log10_k": flow.log10_k[None],
        "divergence": flow.divergence[None],
        "norm": flow.norm[None],
        "stays": np.array([bool((flow.selection[-1] == selection).all())]),
    }


def _find_slack(problem: Any, selection: Any, target: Any) -> float:
    logits, scores = problem.logits(target), problem.scores
    lead, rise = (
        np.take_along_axis(values, selection[:, None], axis=1) - values
        for values in (logits, scores)
    )
    return float(min(1.0, *(lead[rise < 0] - 1), 1.0))


def _reach_selection(mm: Any, problem: Any, p: float, seed: int) -> tuple[Any, str]:
    """A selection that training reaches, and which is locally optimal, local ones preferred."""
    record = mm.train_attention(
        problem,
        p,
        num_steps=2000 if p <= 2 else 8000,
        init=mm.NormalInit(std=1.0, seeds=range(seed, seed + 10)),
        record=1,
        target=None,
        threads=1,
    )
    chosen = record.final_selection[0, 0]
    kinds = mm.classify_selections(problem, chosen[None, None], p, threads=1)[0, 0].tolist()
    kind = "local" if "local" in kinds else "global"
    return chosen[kinds.index(kind)], kind


def _draw_directions(target: Any, p: float, mu: float, count: int, rng: Any) -> Any:
    """Directions of unit norm on the rim of the cone, D = mu, by halving, (count, d, d)."""
    from mirrormargin.dynamics.metrics import find_divergence, find_norm

    def scale(W: Any) -> Any:
        return W / np.asarray(find_norm(W, p))[..., None, None]

    U, noise = scale(target), scale(rng.normal(size=(count, *target.shape)))
    low, high = np.zeros((count, 1, 1)), np.ones((count, 1, 1))
    for _ in range(50):
        middle = (low + high) / 2
        outside = find_divergence(U, (1 - middle) * U + middle * noise, p)[:, None, None] > mu
        low, high = np.where(outside, low, middle), np.where(outside, middle, high)
    return scale((1 - low) * U + low * noise)


EXPERIMENT = Experiment(
    name="cones",
    title="mirror descent with a constant rate, started near a locally optimal direction",
    profiles={
        "quick": {
            "num_seeds": 2,
            "p": [1.75, 2.0, 3.0],
            "lr": 0.1,
            "num_draws": 50,
            "decades": 300,
            "num_points": 301,
        },
        "full": {
            "num_seeds": 10,
            "p": [1.5, 1.75, 2.0, 3.0, 5.0],
            "lr": 0.1,
            "num_draws": 200,
            "decades": 300,
            "num_points": 301,
        },
    },
    split=split,
    run=run,
    shared=("mu", "radius"),
)
