"""The interior point compiled by Numba, for many small problems.

    vectors     loops over contiguous vectors
    newton      the Newton system
    kernel      predictor and corrector steps towards mu = 0
    candidates  many problems over threads, each result measured with the original tokens

What the kernel finds counts only once it has been certified.
"""
