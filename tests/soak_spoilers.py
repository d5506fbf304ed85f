"""Faults that are put into the product, so that trials of it can be seen to fail."""

from contextlib import contextmanager


def forget_a_bit():
    """Trainings in the lab resume a little beside where they were."""
    from mirrormargin.dynamics.descent import resuming

    restore = resuming.restore_batch

    def restore_beside(record):
        batch = restore(record)
        batch.u[...] *= 1 + 1e-12
        return batch

    resuming.restore_batch = restore_beside


def say_nothing_about_disks():
    """A file that cannot be written is no error of ours."""
    from mirrormargin.runs import files

    files.RunError = OSError


def remove_locks():
    """Runs are written without a lock."""
    from mirrormargin.runs import folder

    @contextmanager
    def hold_nothing(path, **options):
        path.mkdir(parents=True, exist_ok=True)
        yield

    folder.hold_folder = hold_nothing
