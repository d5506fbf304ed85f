"""How a max-margin program is solved: a primal-dual interior point, and what proves its answers.

    constraints          the rows A as a linear operator
    program              min |w|_p s.t. A w >= b, its dual bounds, the gap, proof of infeasibility
    iterate              the point on the path: w, A' lam, slacks
    conjugate_gradients  the Newton system of large problems
    newton               the Newton system, by the cheapest method that is accurate enough
    central_path         predictor and corrector steps towards mu = 0
    solver               scaling, starts, exponents on the way, the answer
    nuclear_path         the same for the nuclear norm

Words that the code uses:

    rows      the constraints: row k of A is a_k, and <w, a_k> >= b_k
    free      which rows are equalities; their multipliers lam may have any sign
    cap       the C of a soft margin, the largest multiplier; None for a hard margin
    chosen    the selection: which token, or tokens, of each sequence must lead

Only the other files of ``svm`` import from here.
"""
