r"""Mirror descent with a constant rate, started in a cone around a locally optimal direction.

    C(mu, R) = { W : D(W_mm / |W_mm|_p, W / |W|_p) <= mu,  |W|_p >= R }

For the selection alpha that a run from a random start reached, local ones preferred: the slope of
the loss towards W_mm(alpha) at random W of many cones; descent from a random W of one cone; and the
same for ever, in log-time. Which cone depends on the problem, for a token of a higher score may lie
close behind the support. If it trails the selected one by 1 + delta where the support trails by 1,
its weight is beyond that of the support only if R delta is large and mu / delta^2 is small.

Axes: S flows, one for each seed and p; M widths, N radii, R recorded decades.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent
from mirrormargin.figures.spread import find_median

__all__ = ["STORY", "reach_selection"]

MU = (0.003, 0.01, 0.03, 0.1, 0.3)
RADIUS = (5.0, 10.0, 20.0, 40.0)
LEAD, WIDTH = 10.0, 16.0  # R delta, and delta / sqrt(2 mu)
NUM_STEPS = 200
VISIBLE = 12.0  # lead in logits up to which a step changes the loss by more than rounding
GRID = np.geomspace(0.3, 30.0, 120)

ARRAYS = {
    "mu": "M: widths of cones",
    "radius": "N: in units of |W_mm|_p: the lead in logits",
    "p, seed": "S",
    "kind": 'S: of the selection alpha, "global" or "local"',
    "delta": "S: of the problem, at most 1",
    "descends": "S M N: share of random W of a cone with <grad L(W), W_mm> < 0",
    "start_mu, start_radius": "S: of the cone where the descent starts",
    "start_descends": "S: the share of that cone",
    "loss_rise": "S: largest change of log L in a step of the descent",
    "log10_k, divergence, norm": "S R: of the flow from the same start",
    "stays": "S: whether the flow still selects alpha in the end",
}


def split(settings: Settings) -> list[tuple[float, int]]:
    return [(p, seed) for p in settings["p"] for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm

    p, seed = part
    problem = mm.synthetic.unit_sphere(seed)
    rng = np.random.default_rng([seed, int(1000 * p)])
    selection, kind = reach_selection(problem, p, seed)
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


def reach_selection(problem: Any, p: float, seed: int) -> tuple[Any, str]:
    """A selection that training reaches, and which is locally optimal, local ones preferred."""
    import mirrormargin as mm

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
    from mirrormargin.geometry.vector_batches import divergence_each, norm_each

    def scale(W: Any) -> Any:
        return W / norm_each(W, p, axes=2)[..., None, None]

    U, noise = scale(target), scale(rng.normal(size=(count, *target.shape)))
    low, high = np.zeros((count, 1, 1)), np.ones((count, 1, 1))
    for _ in range(50):
        middle = (low + high) / 2
        mixed = (1 - middle) * U + middle * noise
        outside = divergence_each(U, mixed, p, axes=2)[:, None, None] > mu
        low, high = np.where(outside, low, middle), np.where(outside, middle, high)
    return scale((1 - low) * U + low * noise)


def examine_cone(evidence: Evidence) -> Finding:
    descends, norm = evidence["start_descends"], evidence["norm"]
    growth = norm[:, -1] / norm[:, 0]
    mu, radius = evidence["start_mu"], evidence["start_radius"]
    visible = radius <= VISIBLE
    return Finding(
        [
            all_at_least("share of W in the cone with a slope towards W_mm", descends, 1.0),
            all_at_most(
                "largest change of log L in a step", evidence["loss_rise"][visible], -1e-15
            ),
            all_at_least("growth of |W|_p along the flow", growth, 2.0),
        ],
        f"slope negative at {descends.min():.0%} of W in each of {len(descends)} cones",
        f"A token of a higher score close behind the support makes a cone narrow: the widths used"
        f" run from {mu.max():.0e} down to {mu.min():.0e}, the radii from {radius.min():.0f} to"
        f" {radius.max():.0f} times |W_mm|_p. Further out than {VISIBLE:g} the loss changes by less"
        f" than rounding: {int(visible.sum())} descents are looked at step by step",
    )


def examine_direction(evidence: Evidence) -> Finding:
    D = evidence["divergence"]
    left = D[:, -1] / D[:, 0]
    falling = np.diff(D[:, 2 * D.shape[1] // 3 :], axis=1) < 0
    num_local = int((evidence["kind"] == "local").sum())
    return Finding(
        [
            share_at_least("flows that keep their selection", evidence["stays"]),
            share_at_least("decades of the last third in which D falls", falling),
            all_at_most("D at the end, as a share of that at the start", left, 0.25),
        ],
        f"D falls to {left.max():.0%} or less in {len(D)} of {len(D)} flows, {num_local} of them"
        " around a local direction",
    )


def examine_local(evidence: Evidence) -> Finding:
    chosen = evidence["p"] == 2
    D = evidence["divergence"][chosen]
    left = D[:, -1] / D[:, 0]
    falling = np.diff(D[:, 2 * D.shape[1] // 3 :], axis=1) < 0
    num_local = int((evidence["kind"][chosen] == "local").sum())
    return Finding(
        [
            share_at_least("flows that keep their selection", evidence["stays"][chosen]),
            share_at_least("decades of the last third in which 1 - cos falls", falling),
            all_at_most("1 - cos at the end, as a share of that at the start", left, 0.25),
        ],
        f"1 - cos falls to {left.max():.0%} or less in {len(D)} flows, {num_local} of them around"
        " a direction that is not the global one",
    )


CLAIMS = (
    Claim(
        id="A.thm.divergence",
        title="Near a locally optimal direction there is no stationary point, and |W| diverges",
        statement="Around every locally optimal direction there is a cone in which the loss falls"
        " towards it; mirror descent with a small rate that starts there has a falling loss and a"
        " norm without bound.",
        source="paper A, theorem on norm divergence",
        provenance=Provenance.RECALLED,
        published="<grad L, W_mm> < 0, |W| → ∞",
        examine=examine_cone,
    ),
    Claim(
        id="A.thm.direction",
        title="Mirror descent converges in direction to the local max-margin solution",
        statement="Started in the cone of a locally optimal direction, far enough out, mirror"
        " descent with a small constant rate tends in direction to the lp max-margin solution of"
        " those tokens.",
        source="paper A, theorem on directional convergence",
        provenance=Provenance.RECALLED,
        published="D → 0",
        examine=examine_direction,
    ),
    Claim(
        id="C1.thm.local",
        title="Gradient descent that starts near a locally optimal direction converges to it",
        statement="Inside a cone around a locally optimal direction, and with a norm that is large"
        " enough, gradient descent with a small rate converges in that direction.",
        source="C1, theorem on local convergence of gradient descent",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        examine=examine_local,
    ),
)


def draw_cones(evidence: Evidence) -> Figure:
    p, mu, radius = (evidence[name] for name in ("p", "mu", "radius"))
    flows, slopes = [], []
    for one in np.unique(p):
        chosen, group = p == one, name_exponent(one)
        curves = [_rescale(evidence, row) for row in np.flatnonzero(chosen).tolist()]
        flows.append(Series(group, GRID, *find_median(np.array(curves)), group=group))
        share = evidence["descends"][chosen].mean(axis=0)
        slopes.append(Series(group, mu, share[:, radius.argmax()], group=group))
    stays = evidence["stays"]
    return Figure(
        "cones",
        "Cones around locally optimal directions",
        f"Left: divergence D of {stays.size} flows that start in a cone, over that at the start,"
        " against log k over the lead in logits at the start; median with the least and the"
        f" largest. {int(stays.sum())} end at the selection of their cone. Right: share of random W"
        f" on the rim of a cone, at a lead of {radius.max():g} in logits, at which the loss falls"
        " towards the max-margin solution.",
        (
            Panel(
                "from a start in the cone",
                Axis("log k / lead at the start", "log"),
                Axis("D / D at the start", "log"),
                tuple(flows),
            ),
            Panel(
                "slope towards W_mm",
                Axis("width μ of the cone", "log"),
                Axis("share that descends"),
                tuple(slopes),
            ),
        ),
        columns=2,
    )


def _rescale(evidence: Evidence, row: int) -> np.ndarray:
    """Flows of different lengths on one axis: each outgrows its start when log k is its lead."""
    D = evidence["divergence"][row]
    x = np.log(10) * evidence["log10_k"][row] / evidence["start_radius"][row]
    return np.interp(GRID, x, D / D[0])


STORY = Story(
    name="cones",
    title="mirror descent with a constant rate, started near a locally optimal direction",
    arrays=ARRAYS,
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
    draw=(draw_cones,),
    claims=CLAIMS,
)
