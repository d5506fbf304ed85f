r"""The league of ways to sparse weights: how good is a model with 95, 98 and 99% exact zeros?

    difference of two ways = mean over seeds of ours - theirs, paired, with its 95% interval

Ours is ahead where the interval lies above 0, behind where it lies below, and level otherwise.
Which of our two ways stands for us is chosen by validation data at 98%, as every setting is.

Axes: W ways, R shares, S seeds. Scores are accuracies in %, or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.campaign import league
from mirrormargin.claims.campaign.grid_search import Method, rate
from mirrormargin.claims.campaign.training_table import Finals, TrainingTable, find_setting
from mirrormargin.claims.checks import check_seeds, find_interval, mean_at_most
from mirrormargin.claims.claim import Check, Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Story
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean
from mirrormargin.training.summary import SHARES
from mirrormargin.training.tasks import read_task

__all__ = ["OURS", "STORIES", "collect_league", "make_story"]

OURS = ("MirrorAdam", "MirrorAdam + L1")
LOST = {"accuracy": 1.0, "loss": np.log(1.03)}  # that 95% may cost: a point, or 3% of perplexity

ARRAYS = {
    "way, setting": "W",
    "share": "R: of the entries of all block matrices that are zero",
    "score": "W R S: on test data; nan where a way has fewer seeds",
    "validation": "W: at 98% with the first seed, larger for a better one",
    "dense": "S: of AdamW's models before anything is removed",
    "is_loss": ": whether scores are losses, and smaller ones better",
}


def collect_league(methods: Sequence[Method], finals: Finals) -> Arrays:
    ways: dict[str, list[tuple[Method, list[dict]]]] = {}
    for method, records in zip(methods, finals, strict=True):
        ways.setdefault(league.name_way(method), []).append((method, records))
    num_seeds = max(len(records) for records in finals)
    score = np.full((len(ways), len(league.SHARES), num_seeds), np.nan)
    validation, settings = [], []
    for k, own in enumerate(ways.values()):
        for method, records in own:
            is_one_shot = len(own) == 1
            for r, share in enumerate(league.SHARES):
                if is_one_shot or share in method.removed:
                    for s, record in enumerate(records):
                        found = record["test"]
                        pruned = found["frontier"]["blocks"][SHARES.index(share)]
                        score[k, r, s] = pruned if is_one_shot else found["unpruned"]
        tuned, records = next(pair for pair in own if league.TUNED_AT in pair[0].removed)
        validation.append(rate(records[0], tuned.removed))
        settings.append(find_setting(records[0]))
    dense = next(records for method, records in ways["AdamW"])
    return {
        "way": np.array(list(ways)),
        "setting": np.array(settings),
        "share": np.array(league.SHARES),
        "score": score,
        "validation": np.array(validation),
        "dense": np.array([record["test"]["unpruned"] for record in dense]),
        "is_loss": np.array(not read_task(finals[0][0]["config"]).is_larger_better),
    }


def choose_ours(evidence: Evidence) -> int:
    """The way that stands for us: of our own the best on validation data."""
    own = [k for k, way in enumerate(evidence["way"].tolist()) if way in OURS]
    return max(own, key=lambda k: evidence["validation"][k])


def compare(evidence: Evidence, ours: int, other: int, at: int) -> NDArray[np.float64]:
    """How much better ours is at a share, seed by seed."""
    difference = evidence["score"][ours, at] - evidence["score"][other, at]
    known = difference[np.isfinite(difference)]
    return -known if evidence["is_loss"] else known


def judge(difference: NDArray[np.float64]) -> str:
    """``ahead``, ``behind`` or ``level``, by the interval of a mean difference."""
    _, low, high = find_interval(difference)
    if low is None or high is None:
        return "level"
    return "ahead" if low > 0 else "behind" if high < 0 else "level"


def examine_league(measure: str, evidence: Evidence) -> Finding:
    ways, ours = evidence["way"].tolist(), choose_ours(evidence)
    others = [k for k, way in enumerate(ways) if way not in OURS]
    results = {
        (k, r): judge(compare(evidence, ours, k, r))
        for k in others
        for r in range(len(evidence["share"]))
    }
    checks = [
        _check_rank(f"{ways[ours]} at {share:.0%} zeros", [results[k, r] for k in others])
        for r, share in enumerate(evidence["share"])
    ]
    dense = evidence["dense"] - evidence["score"][ours, 0, : len(evidence["dense"])]
    lost = -dense if evidence["is_loss"] else dense
    checks += [
        mean_at_most(f"{measure} lost at 95% zeros", lost, LOST[measure]),
        check_seeds(evidence["score"][ours]),
    ]
    form = ".3f" if evidence["is_loss"] else ".1f"
    means = [
        " / ".join(f"{one:{form}}" for one in np.nanmean(s, axis=-1)) for s in evidence["score"]
    ]
    return Finding(
        checks,
        f"dense {evidence['dense'].mean():{form}}; at 95 / 98 / 99%: "
        + ", ".join(f"{way} {text}" for way, text in zip(ways, means, strict=True)),
        f"Test {measure}. All ways were tuned at 98% with eight trainings each.",
    )


def _check_rank(name: str, results: list[str]) -> Check:
    """Whether ours is behind nobody; the number says how many it is ahead of."""
    ahead, behind = results.count("ahead"), results.count("behind")
    found = f"ahead of {ahead}, behind {behind} of {len(results)}"
    return Check(name, "statement", "behind none", found, None, None, behind == 0)


def draw_league(data: str, measure: str, evidence: Evidence) -> Figure:
    ways, ours = evidence["way"].tolist(), choose_ours(evidence)
    share, score = evidence["share"], evidence["score"]
    places = np.arange(share.size, dtype=np.float64)
    lines = []
    for k, look in enumerate(choose_looks(ways)):
        offset = 0.08 * (k - (len(ways) - 1) / 2)
        lines.append(
            Series(
                look.name, places + offset, *find_mean(score[k].T), style="points", group=look.group
            )
        )
    level = np.full(2, evidence["dense"].mean())
    ends = np.array([-0.4, share.size - 0.6])
    lines.append(Series("dense AdamW", ends, level, style="dashed", group="untrained"))
    labels = tuple(f"{100 * one:g}%" for one in share)
    axis = Axis(f"test {measure}" + ("" if evidence["is_loss"] else ", %"))
    panel = Panel(
        "with so many zeros", Axis("weights that are zero", ticks=labels), axis, tuple(lines)
    )
    form = ".3f" if evidence["is_loss"] else ".2f"
    rows = []
    for k, way in enumerate(ways):
        cells = []
        for r in range(share.size):
            known = score[k, r][np.isfinite(score[k, r])]
            verdict = "" if k == ours else f" ({judge(compare(evidence, ours, k, r))})"
            cells.append(describe_mean(known, form) + verdict)
        rows.append((way, *cells, str(evidence["setting"][k])))
    return Figure(
        evidence.experiment,
        f"{data}: a league of ways to sparse weights",
        f"Test {measure} with 95, 98 and 99% of the entries of all block matrices exactly zero,"
        f" {describe_seeds(score.shape[-1])}. Every way was tuned with eight trainings at 98%, on"
        f" validation data, and frozen. In brackets, how {ways[ours]} stands against it: ahead or"
        " behind where the interval of the paired difference excludes 0.",
        (panel,),
        table=Table(("way", *(f"{100 * one:g}% zeros" for one in share), "setting"), tuple(rows)),
    )


def make_story(
    name: str, data: str, methods: tuple[Method, ...], measure: str = "accuracy"
) -> Story:
    """The story of one data set, such as ``make_story("mnist", "MNIST", methods)``."""
    return Story(
        name=f"league-{name}",
        title=f"ways to sparse weights, {data}",
        arrays=ARRAYS,
        table=TrainingTable(
            methods, collect_league, required=tuple(method.name for method in methods)
        ),
        needs="trainings (mirrormargin campaign)",
        draw=(partial(draw_league, data, measure),),
        claims=(
            Claim(
                id=f"M.league.{name}",
                title=f"On {data} nobody keeps more of a sparse model",
                statement=f"On {data}, with 95, 98 and 99% of the block weights exactly zero,"
                " MirrorAdam with a schedule is not behind AdamW pruned in the end, AdamW with an"
                " l1 penalty, gradual pruning and memoryless top-k, and at 95% it is within a point"
                " of the dense model (3% of its perplexity).",
                source="this library",
                provenance=Provenance.OWN,
                published="",
                examine=partial(examine_league, measure),
                should_hold=False,
            ),
        ),
    )


# Those whose trainings are recorded: none yet.
STORIES: tuple[Story, ...] = ()
