"""Classify tumours with few of their 30 measurements, and prove that the weights are the best."""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mirrormargin.integrations.sklearn import LpMarginClassifier, LpMarginSelector

data = load_breast_cancer(as_frame=False)
x, x_test, y, y_test = train_test_split(
    data.data, data.target, stratify=data.target, random_state=0
)

pipeline = make_pipeline(StandardScaler(), LpMarginClassifier())
grid = {"lpmarginclassifier__p": [1.1, 1.5, 2.0], "lpmarginclassifier__C": [0.01, 0.1, 1.0]}
search = GridSearchCV(pipeline, grid, cv=5).fit(x, y)
best = search.best_estimator_[-1]
print(f"{best}: {search.score(x_test, y_test):.1%} right, proven gap {best.dual_gap_.max():.0e}")

for most in (3, 6, 12):
    selector = LpMarginSelector(max_features=most)
    few = make_pipeline(StandardScaler(), selector, LpMarginClassifier()).fit(x, y)
    names = data.feature_names[selector.get_support()]
    print(f"{few.score(x_test, y_test):.1%} with {most}: {', '.join(names[:3])}, ...")
