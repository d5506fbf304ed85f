r"""Prompts in the plane, trained from several starts by normalised and by constant steps.

Three problems: one sequence whose third token scores 0.9, so that all tokens but one score alike;
the same sequence with a third score of 0, which makes token 1 locally optimal; and three sequences
of seven tokens, all but one alike. Starts are (0, a), or (a, 0) for the last one, with a in 1, 0.5,
0, -0.5, -1, -1.5. Normalised steps have length 0.1, constant ones the rate 1.

Axes: S runs, one for each problem, rule and start; R recorded steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.arguments import StepRule
from mirrormargin.claims.checks import all_at_least, all_at_most, mean_near, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]

STARTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
RULES: tuple[tuple[StepRule, float], ...] = (("normalized", 0.1), ("constant", 1.0))
SHOWN = 199  # the last step of the published pictures
TITLES = {
    "alike": "other tokens score alike",
    "local": "a second token is locally optimal",
    "multi": "three sequences",
}
NAMES = {"normalized": "normalised", "constant": "gradient descent"}
VIEW = 4.0  # radius of the plane that is shown: the keys are within 2

ARRAYS = {
    "steps": "R",
    "problem": 'S: "alike", "local" or "multi"',
    "rule": 'S: "normalized" or "constant"',
    "start": "S: a",
    "path": "S R 2: the prompts",
    "norm": "S R: |prompt|",
    "attention": "S R: mean attention on the optimal tokens",
    "divergence": "S R: 1 - cos to the max-margin prompt of the tokens selected in the end; nan"
    " where the prompt is 0",
    "optimal": "S: share of sequences that select their optimal token in the end",
    "locally_optimal": "S: whether the selection is",
    "keys": "S 3 7 2: of the problem, padded by nan",
    "scores": "S 3 7: of the problem, padded by nan",
    "target": "S 2: the max-margin prompt",
}


def split(settings: Settings) -> list[str]:
    return ["alike", "local", "multi"]


def run(settings: Settings, name: Any) -> Arrays:
    import mirrormargin as mm

    problem = (
        mm.synthetic.planar_multi(settings["seed"])
        if name == "multi"
        else mm.synthetic.planar_single(0.9 if name == "alike" else 0.0)
    )
    starts = np.zeros((1, 1, len(STARTS), 3, 3))
    starts[0, 0, :, 0 if name == "multi" else 1, 0] = STARTS
    # Every step of the published pictures, which end at 200, then fewer.
    wanted = np.union1d(np.arange(200), np.geomspace(200, settings["num_steps"], 60).round())
    parts, steps = [], wanted
    for rule, lr in RULES:
        record = mm.train_attention(
            problem,
            step_rule=rule,
            lr=lr,
            num_steps=settings["num_steps"],
            init=starts,
            record=wanted.astype(int),
            target_tol=1e-11,
            keep_path=True,
            threads=1,
        )
        assert record.path is not None
        assert record.divergence is not None
        assert record.target is not None
        path, chosen = record.path[0, 0][..., :2, 0], record.final_selection[0, 0]
        count, steps = len(STARTS), record.steps[0, 0, 0]
        parts.append(
            {
                "problem": np.full(count, name),
                "rule": np.full(count, rule),
                "start": np.array(STARTS),
                "path": path,
                "norm": np.linalg.norm(path, axis=-1),
                "attention": _attend(problem, record.path[0, 0]),
                "divergence": record.divergence[0, 0],
                "optimal": (chosen == problem.optimal_tokens).mean(axis=-1),
                "locally_optimal": np.array(
                    [mm.is_locally_optimal(problem, tokens) for tokens in chosen]
                ),
                "keys": np.stack([_pad(problem.tokens[..., :2])] * count),
                "scores": np.stack([_pad(problem.scores)] * count),
                "target": record.target[0, 0][..., :2, 0],
            }
        )
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return {"steps": steps, **arrays}


def _attend(problem: Any, W: Any) -> Any:
    """Mean attention on the optimal tokens, (starts, steps)."""
    logits = np.einsum("ntd,irde,ne->irnt", problem.tokens, W, problem.queries)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    best = problem.optimal_tokens
    return weights[..., np.arange(len(best)), best].mean(axis=-1)


def _pad(array: Any) -> Any:
    padded = np.full((3, 7, *array.shape[2:]), np.nan)
    padded[: array.shape[0], : array.shape[1]] = array
    return padded


def examine_single(evidence: Evidence) -> Finding:
    normalized = evidence["rule"] == "normalized"
    alike, local = (normalized & (evidence["problem"] == name) for name in ("alike", "local"))
    D, optimal = evidence["divergence"][:, -1], evidence["optimal"]
    at_local = int((optimal[local] == 0).sum())
    return Finding(
        [
            all_at_least(
                "third score 0.9: starts that end at the optimal token", optimal[alike], 1
            ),
            all_at_most("third score 0: least share of optimal tokens", optimal[local].min(), 0),
            all_at_least("third score 0: largest share of optimal tokens", optimal[local].max(), 1),
            share_at_least("selections that are locally optimal", evidence["locally_optimal"]),
            all_at_most("1 - cos to the own max-margin prompt", D[alike | local], 1e-3),
        ],
        f"third score 0.9: {int(optimal[alike].sum())} of {alike.sum()} starts end at the optimal"
        f" token; third score 0: {at_local} of {local.sum()} end at the local one",
    )


def examine_multi(evidence: Evidence) -> Finding:
    multi = evidence["problem"] == "multi"
    rows = {rule: multi & (evidence["rule"] == rule) for rule in ("normalized", "constant")}
    centre = evidence["start"] == 0  # the published curves are of this start
    norms, attention = (
        {rule: _find_shown(evidence, name, row & centre) for rule, row in rows.items()}
        for name in ("norm", "attention")
    )
    return Finding(
        [
            all_at_least("share of optimal tokens in the end", evidence["optimal"][multi], 1.0),
            all_at_most(
                "1 - cos after normalised steps",
                evidence["divergence"][rows["normalized"], -1],
                1e-3,
            ),
            mean_near("|prompt| after 200 normalised steps", norms["normalized"], 19.5, 0.5),
            mean_near("|prompt| after 200 steps of gradient descent", norms["constant"], 3.9, 0.5),
            mean_near("attention after 200 normalised steps", attention["normalized"], 1.0, 0.02),
            mean_near("attention after 200 steps", attention["constant"], 0.97, 0.02),
        ],
        f"|prompt| {norms['normalized'].mean():.1f} and {norms['constant'].mean():.2f}; attention"
        f" {attention['normalized'].mean():.3f} and {attention['constant'].mean():.3f}",
    )


def _find_shown(evidence: Evidence, name: str, rows: Any) -> Any:
    return evidence[name][rows, np.searchsorted(evidence["steps"], SHOWN)]


CLAIMS = (
    Claim(
        id="C1.fig.single",
        title="One sequence: which token a prompt ends at depends on the support token's score",
        statement="With a third score of 0.9 all six starts go to the optimal token; with a third"
        " score of 0 some of them go to the locally optimal one.",
        source="C1, figure of one sequence in the plane",
        provenance=Provenance.SEEN,
        published="0.9: all at the optimal token; 0: some at the local one",
        examine=examine_single,
    ),
    Claim(
        id="C1.fig.multi",
        title="Three sequences: normalised steps grow a prompt five times as fast as plain ones",
        statement="On three sequences whose tokens but one score alike, all starts go to the"
        " max-margin direction, and normalised steps get there much faster.",
        source="C1, figures of three sequences in the plane",
        provenance=Provenance.SEEN,
        published="|prompt| 19.5 and 3.9, attention 1.00 and 0.97 after 200 steps",
        examine=examine_multi,
    ),
)


def draw_prompts(evidence: Evidence) -> Figure:
    names = list(dict.fromkeys(evidence["problem"].tolist()))
    planes, rates = [], []
    for name in names:
        chosen = evidence["problem"] == name
        title = TITLES.get(name, str(name))
        normalized = np.flatnonzero(chosen & (evidence["rule"] == "normalized"))
        series = [_draw_ray(evidence["target"][i]) for i in _choose_rays(evidence, normalized)]
        for i in normalized:
            path = evidence["path"][i]
            path = path[np.hypot(*path.T) <= VIEW]
            best = evidence["optimal"][i] == 1
            group = "optimal tokens" if best else "locally optimal"
            style = "arrow path"
            series.append(Series(f"to the {group}", *path.T, style=style, group=group))
        keys = evidence["keys"][chosen][0].reshape(-1, 2)
        series.append(Series("tokens", *keys.T, style="points", group="target"))
        axes = Axis("first coordinate"), Axis("second coordinate")
        planes.append(Panel(title, *axes, tuple(series), equal_aspect=True))
        lines = []
        for rule, group in NAMES.items():
            values = evidence["divergence"][chosen & (evidence["rule"] == rule)]
            values = np.where(values > 0, values, np.nan)
            lines.append(Series(group, evidence["steps"], *find_median(values), group=group))
        axes = Axis("step", "log"), Axis("1 − cos", "log")
        rates.append(Panel(f"1 − cos, {title}", *axes, tuple(lines)))
    return Figure(
        "prompts",
        "Where a prompt goes from several starts",
        "Top: normalised descent from six starts, near the origin; dashed rays are the max-margin"
        " directions of the tokens selected in the end. Bottom: 1 − cos to that direction, median"
        " over the starts with the least and the largest.",
        (*planes, *rates),
        columns=len(names),
    )


def _choose_rays(evidence: Evidence, rows: np.ndarray) -> list[int]:
    """One run for each target that there is."""
    seen: dict[tuple[float, ...], int] = {}
    for i in rows:
        seen.setdefault(tuple(np.round(evidence["target"][i], 6).tolist()), int(i))
    return list(seen.values())


def _draw_ray(target: np.ndarray) -> Series:
    end = VIEW * target / max(float(np.hypot(*target)), 1e-300)
    x, y = np.array([0.0, end[0]]), np.array([0.0, end[1]])
    return Series("max-margin direction", x, y, style="dashed", group="target")


STORY = Story(
    name="prompts",
    title="prompts in the plane from six starts, by normalised and constant steps",
    arrays=ARRAYS,
    profiles={"quick": {"num_steps": 10_000}, "full": {"num_steps": 100_000}},
    split=split,
    run=run,
    draw=(draw_prompts,),
    claims=CLAIMS,
)
