r"""How few changed numbers keep a fine-tuning: sparse deltas of a pretrained encoder, by method.

Every method is tuned on SST-2 with as many trainings and then frozen; each result is that of a file
that was saved and loaded. Heads are trained by all methods and stored with every file; numbers are
counted without them, bytes with them.

Axes: K results, which are a method at a size; S seeds. Scores are in %.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from mirrormargin.claims.checks import NUMBER, check_seeds, mean_at_most, surely_smaller
from mirrormargin.claims.claim import Check, Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Story
from mirrormargin.figures import Axis, Figure, Panel, Series, Table
from mirrormargin.figures.palette import choose_looks
from mirrormargin.figures.spread import describe_mean, describe_seeds, find_mean

__all__ = ["OURS", "STORIES", "make_story"]

OURS, FULL, HEAD = "centred MirrorAdam", "AdamW, all weights", "head alone"
SIZES = (2_000, 10_000, 50_000)  # numbers at which methods are compared
CLAIMED = 10_000
LOST = 1.0  # points that a task may lose
LEARNT = 5.0  # points that full fine-tuning must be ahead of the head alone

ARRAYS = {
    "method": "K",
    "setting": "K: what was tuned on SST-2",
    "numbers": "K: stored, without the head",
    "bytes": "K: of the file or files, mean over seeds",
    "score": "K S: on test data",
}


def find_score(evidence: Evidence, method: str, most: float = np.inf) -> NDArray[np.float64]:
    """The scores, (S,), of a method's largest size with at most so many numbers.

    Empty if it has none.
    """
    own = evidence["method"] == method
    fits = np.flatnonzero(own & (evidence["numbers"] <= most))
    if not fits.size:
        return np.zeros(0)
    return evidence["score"][fits[evidence["numbers"][fits].argmax()]]


def compare_methods(evidence: Evidence, most: int) -> list[Check]:
    """Whether ours is ahead of every other method with at most so many numbers."""
    ours = find_score(evidence, OURS, most)
    kind = {} if most == CLAIMED else {"kind": NUMBER}
    return [
        surely_smaller(f"{OURS} less {name}, at most {most:,} numbers", score, ours, **kind)
        for name in dict.fromkeys(evidence["method"].tolist())
        if name not in (OURS, FULL, HEAD)
        for score in [find_score(evidence, name, most)]
        if score.size
    ]


def examine_deltas(measure: str, evidence: Evidence) -> Finding:
    full, head = (find_score(evidence, name) for name in (FULL, HEAD))
    ours = find_score(evidence, OURS, CLAIMED)
    checks = [
        surely_smaller("full fine-tuning less the head alone and 5 points", head + LEARNT, full),
        mean_at_most(f"full fine-tuning less {CLAIMED:,} numbers", full - ours, LOST),
        *(check for most in SIZES for check in compare_methods(evidence, most)),
        check_seeds(ours),
    ]
    sizes = [f"{find_score(evidence, OURS, most).mean():.2f} with {most:,}" for most in SIZES]
    best = max(
        (find_score(evidence, name, CLAIMED).mean(), name)
        for name in dict.fromkeys(evidence["method"].tolist())
        if name not in (OURS, FULL, HEAD) and find_score(evidence, name, CLAIMED).size
    )
    return Finding(
        checks,
        f"all weights {full.mean():.2f}, head alone {head.mean():.2f}; ours {', '.join(sizes)}",
        f"{measure} in %, {describe_seeds(ours.size)}; the best other method with at most"
        f" {CLAIMED:,} numbers is {best[1]}, {best[0]:.2f}.",
    )


def draw_deltas(what: str, measure: str, evidence: Evidence) -> Figure:
    names = tuple(dict.fromkeys(evidence["method"].tolist()))
    levels = {name: float(find_score(evidence, name).mean()) for name in (FULL, HEAD)}

    def panel(title: str, key: str, label: str) -> Panel:
        x = evidence[key].astype(np.float64)
        ends = np.array([x[x > 0].min(), x.max()])
        lines = []
        for look in choose_looks([name for name in names if name not in levels]):
            rows = np.flatnonzero((evidence["method"] == look.name) & (x > 0))
            rows = rows[x[rows].argsort()]
            points = find_mean(evidence["score"][rows].T)
            style = "points" if rows.size == 1 else look.style
            lines.append(Series(look.name, x[rows], *points, style=style, group=look.group))
        lines += [
            Series(name, ends, np.full(2, level), style="dashed", group="untrained")
            for name, level in levels.items()
        ]
        return Panel(title, Axis(label, "log"), Axis(f"{measure}, %"), tuple(lines))

    rows = tuple(
        (
            str(evidence["method"][k]),
            f"{evidence['numbers'][k]:,}",
            f"{evidence['bytes'][k] / 1000:,.1f}",
            describe_mean(evidence["score"][k]),
            str(evidence["setting"][k]),
        )
        for k in range(len(evidence["method"]))
    )
    return Figure(
        evidence.experiment,
        f"{what}: a fine-tuning in few numbers",
        f"Test {measure} of what was saved and loaded,"
        f" {describe_seeds(evidence['score'].shape[1])}, against numbers stored beside the head,"
        " and against bytes on disk with the head. Lines at the top and at the bottom are full"
        " fine-tuning and the head alone. Every method was tuned on SST-2, with six trainings and"
        " validation data.",
        (
            panel("by numbers", "numbers", "numbers stored"),
            panel("by bytes", "bytes", "bytes on disk"),
        ),
        columns=2,
        table=Table(("method", "numbers", "kB", f"test {measure}", "setting"), rows),
    )


def make_story(task: str, what: str, measure: str = "accuracy") -> Story:
    """The story of a task, such as ``make_story("sst2", "SST-2")``."""
    return Story(
        name=f"deltas-{task}",
        title=f"sparse changes of an encoder, {what}",
        arrays=ARRAYS,
        needs="trainings (python -m tools.delta_trainings)",
        draw=(partial(draw_deltas, what, measure),),
        claims=(
            Claim(
                id=f"M.delta.{task}",
                title=f"On {what} 10,000 changed weights are as good as all of them",
                statement="MirrorAdam centred at the pretrained weights, with a schedule that"
                f" leaves 10,000 changes, loses at most a point against full fine-tuning on {what},"
                " and no other method with as many numbers is as good.",
                source="this library",
                provenance=Provenance.OWN,
                published="",
                examine=partial(examine_deltas, measure),
                should_hold=False,
            ),
        ),
    )


# Those whose trainings are recorded: none yet.
STORIES: tuple[Story, ...] = ()
