"""Imported by the server that workers are forked from, so that each of them begins at once.

A server can be given modules and nothing else: importing this one computes a run, for which
everything is imported and compiled code is loaded.
"""

from contextlib import suppress

from mirrormargin.geometry.threads import limit_threads
from mirrormargin.sweep.lab_grid import LabGrid
from mirrormargin.sweep.lab_runs import compute_lab_runs

with suppress(Exception), limit_threads(1):  # what is wrong is told by the runs themselves
    compute_lab_runs(LabGrid(num_steps=1).products[0], 0, 1)
