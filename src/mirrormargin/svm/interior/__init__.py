"""How a max-margin program is solved: a primal-dual interior point, and what proves its answers.

    constraints          the rows A as a linear operator
    program              min |w|_p s.t. A w >= b, its dual bounds, the gap, proof of infeasibility
    iterate              the point on the path: w, A' lam, slacks
    conjugate_gradients  the Newton system of large problems
    newton               the Newton system, by the cheapest method that is accurate enough
    central_path         predictor and corrector steps towards mu = 0
    solver               scaling, starts, exponents on the way, the answer
    nuclear_path         the same for the nuclear norm

Only the other files of ``svm`` import from here.
"""
