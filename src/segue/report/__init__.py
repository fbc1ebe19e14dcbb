"""Tables, curves and a web page from run folders alone. Nothing here imports torch or the training code."""

from segue.report.ablation import Ablation, ablation_page, ablation_table
from segue.report.files import write_report
from segue.report.markdown import markdown_tables
from segue.report.methods import MethodTable, methods_page, methods_table
from segue.report.tables import metrics_table, results_table
from segue.report.tuning import Trials, TuningTable, choice_yaml, tuning_page, tuning_table

__all__ = [
    "Ablation",
    "MethodTable",
    "Trials",
    "TuningTable",
    "ablation_page",
    "ablation_table",
    "choice_yaml",
    "markdown_tables",
    "methods_page",
    "methods_table",
    "metrics_table",
    "results_table",
    "tuning_page",
    "tuning_table",
    "write_report",
]
