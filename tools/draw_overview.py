"""Draw docs/overview.png, the picture of the README: what geometry does to weights and directions.

    python tools/draw_overview.py

The left panel comes from the stored record of the pruning comparison on IMDB, the right one from a
flow that is computed now.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import mirrormargin as mm
from mirrormargin.claims.evidence import find_record
from mirrormargin.claims.stories.pruning import draw_pruning
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.report.static import write_static

# From the record's names to what a reader who has a minute should see.
SHOWN = {
    "MirrorAdam + L1": "MirrorAdam p=1.05 + L1",
    "MirrorAdam for pruning": "MirrorAdam p=1.05",
    "MirrorAdam p=1.1": "MirrorAdam p=1.1",
    "gradual pruning to 98%": "gradual pruning",
    "AdamW + L1": "AdamW + L1",
    "AdamW": "AdamW",
}
OUT = Path(__file__).parents[1] / "docs" / "overview.png"


def draw_weights() -> Panel:
    evidence = find_record("pruning-imdb")
    assert evidence is not None
    panel = draw_pruning(evidence)[0]
    series = {one.label: one for one in panel.series}
    shown = tuple(replace(series[name], label=label) for name, label in SHOWN.items())
    return replace(panel, title="Accuracy on IMDB when few weights are left", series=shown)


def draw_directions() -> Panel:
    problem = mm.synthetic.unit_sphere(1)
    flows = [mm.mirror_flow(problem, p, decades=300) for p in (1.5, 2.0, 3.0)]
    lines = tuple(
        Series(f"p = {flow.p:g}", flow.log10_k[1:], flow.divergence[1:], group=f"p = {flow.p:g}")
        for flow in flows
    )
    return Panel(
        "How far W is from the max-margin one",
        Axis("decades of gradient steps, log₁₀ k", "log"),
        Axis("directional divergence", "log"),
        lines,
    )


def main() -> None:
    figure = Figure("overview", "", "", (draw_weights(), draw_directions()))
    with tempfile.TemporaryDirectory() as folder:
        write_static(figure, Path(folder) / "overview")
        OUT.write_bytes((Path(folder) / "overview.png").read_bytes())
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main()
