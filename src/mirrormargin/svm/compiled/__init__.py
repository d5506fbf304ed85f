"""The interior point again, compiled by Numba, for many small problems.

    vectors     loops over contiguous vectors
    newton      the Newton system
    kernel      predictor and corrector steps towards mu = 0
    candidates  many problems over threads, each result measured with the original tokens

Nothing is believed here: what the kernel finds counts only once it is certified.
"""
