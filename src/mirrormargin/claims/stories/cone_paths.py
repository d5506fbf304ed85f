"""Regularisation paths that are kept inside the cone of a locally optimal direction.

Axes: S paths, one for each seed and p; R radii.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import all_at_most, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories.cones import reach_selection
from mirrormargin.claims.story import Arrays, Settings, Story, list_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.palette import name_exponent

__all__ = ["STORY"]

ARRAYS = {
    "p, seed": "S",
    "kind": 'S: of the selection, "global" or "local"',
    "nu": "S: width of the cone, D(V, U) at most nu",
    "lead": "S R: radius times margin, the lead in logits",
    "divergence": "S R: D(U, V) of the minimiser V from the local max-margin solution U",
    "reverse_divergence": "S R: D(V, U)",
    "bound": "S R: proven bound on D(V, U) of every minimiser in the cone",
    "is_certified": "S R: whether the minimiser is one of the whole ball, inside the cone",
}


def split(settings: Settings) -> list[tuple[float, int]]:
    return [(p, seed) for p in settings["p"] for seed in list_seeds(settings)]


def run(settings: Settings, part: Any) -> Arrays:
    import mirrormargin as mm
    from mirrormargin.dynamics.paths import find_local_path

    p, seed = part
    problem = mm.synthetic.unit_sphere(seed)
    selection, kind = reach_selection(problem, p, seed)
    path = find_local_path(problem, selection, p, num_radii=settings["num_radii"])
    names = ("divergence", "reverse_divergence", "bound", "is_certified")
    return {
        "p": np.array([p]),
        "seed": np.array([seed]),
        "kind": np.array([kind]),
        "nu": np.array([path.nu]),
        "lead": path.radii[None] * path.target.margin,
        **{name: getattr(path, name)[None] for name in names},
    }


def examine_local_path(evidence: Evidence) -> Finding:
    D, bound = evidence["divergence"][:, -1], evidence["bound"]
    is_free = bound < evidence["nu"][:, None]
    num_local = int((evidence["kind"] == "local").sum())
    return Finding(
        [
            all_at_most("D at the last radius", D, 1e-4),
            all_at_most("proven bound on D(V, U) at the last radius", bound[:, -1], 1e-4),
            share_at_least(
                "minimisers within the proven bound", evidence["reverse_divergence"] <= bound
            ),
            share_at_least(
                "minimisers certified where the cone does not restrict",
                evidence["is_certified"][is_free],
            ),
        ],
        f"D ≤ {D.max():.1e} on {len(D)} paths, {num_local} of them around a local direction; proven"
        f" of every minimiser in the cone: D(V, U) ≤ {bound[:, -1].max():.1e}",
        f"The widths of the cones, {evidence['nu'].min():.0e} to {evidence['nu'].max():.0e}, follow"
        " from how closely a token of a higher score trails the support. From some radius on the"
        f" proven bound is below the width, on {int(is_free[:, -1].sum())} of {len(D)} paths: there"
        " the cone does not restrict the minimiser",
    )


CLAIMS = (
    Claim(
        id="A.thm.local-path",
        title="Restricted to a cone, the path goes to the local max-margin direction",
        statement="If the minimisation is restricted to the cone of a locally optimal direction,"
        " the path tends to that direction instead.",
        source="paper A, theorem on lp-AttRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        examine=examine_local_path,
    ),
)


def draw_paths(evidence: Evidence) -> Figure:
    p, lead = evidence["p"], evidence["lead"]
    series = []
    for one in np.unique(p):
        group, rows = name_exponent(one), p == one
        grid = np.geomspace(lead[rows, 0].max(), lead[rows, -1].min(), 60)
        for style, values, name in (
            ("line", "reverse_divergence", group),
            ("dashed", "bound", f"{group}, proven bound"),
        ):
            curves = [
                _read_curve(grid, *curve)
                for curve in zip(lead[rows], evidence[values][rows], strict=True)
            ]
            series.append(Series(name, grid, np.median(curves, axis=0), style=style, group=group))
    num_local = int((evidence["kind"] == "local").sum())
    return Figure(
        "cone-paths",
        "Paths inside the cone of a locally optimal direction",
        "Divergence D(V, U) of the minimiser's direction V from the local max-margin direction U,"
        " against the lead in logits, the radius times the margin: median over"
        f" {len(np.unique(evidence['seed']))} problems at each p, from where all their cones begin;"
        f" {num_local} of the {len(p)} selections are not the optimal tokens. Dashed: what is"
        " proven of every minimiser in the cone. V and U, the direction of W_mm, have norm one, and"
        " D(V, U) = 1 − ⟨sign(U)|U|ᵖ⁻¹, V⟩.",
        (
            Panel(
                "the least loss in a cone",
                Axis("R × margin", "log"),
                Axis("D(V, U)", "log"),
                tuple(series),
            ),
        ),
    )


def _read_curve(grid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A curve on the grid, by lines between logarithms; what is nothing beside 1 is rounding."""
    return np.exp(np.interp(np.log(grid), np.log(x), np.log(np.maximum(y, 1e-17))))


STORY = Story(
    name="cone-paths",
    title="paths inside a cone",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 3, "p": [1.75, 2.0, 3.0], "num_radii": 15},
        "full": {"num_seeds": 10, "p": [1.5, 1.75, 2.0, 3.0, 5.0], "num_radii": 20},
    },
    split=split,
    run=run,
    draw=(draw_paths,),
    claims=CLAIMS,
)
