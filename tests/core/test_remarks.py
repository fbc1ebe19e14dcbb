"""Remarks on methods: what the file holds, and what is refused with its name."""

import pytest

from segue.core.errors import UserError
from segue.core.remarks import PaperNumbers, Remarks, read_remarks

GOOD = """
paper:
  setting: VOC 15-1 overlapped
  rows: {mib: [35.1, 13.5, 29.7], caf: [55, null, 1e+1]}
remarks:
  ewc: Forgets more than its paper says.
"""


@pytest.fixture
def read(tmp_path):
    def from_text(text: str) -> Remarks:
        (tmp_path / "remarks.yaml").write_text(text)
        return read_remarks(tmp_path / "remarks.yaml", ["mib", "caf", "ewc"])

    return from_text


def test_file_is_read(read):
    paper = PaperNumbers("VOC 15-1 overlapped", {"mib": (35.1, 13.5, 29.7), "caf": (55.0, None, 10.0)})
    assert read(GOOD) == Remarks(paper, {"ewc": "Forgets more than its paper says."})


def test_each_part_may_be_left_out(read):
    assert read("remarks: {mib: Good.}") == Remarks(None, {"mib": "Good."})
    assert read(GOOD[: GOOD.index("remarks:")]).remarks == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mib:", "mibb:", "There is no method 'mibb'. Did you mean 'mib'?"),
        ("ewc:", "ewcc:", "There is no method 'ewcc'. Did you mean 'ewc'?"),
        ("remarks:", "remark:", "Unknown key 'remark'. Did you mean 'remarks'?"),
        ("setting:", "settings:", "Unknown key 'paper.settings'. Did you mean 'paper.setting'?"),
        ("  setting: VOC 15-1 overlapped\n", "", "'paper.setting' is missing."),
        ("35.1, 13.5, 29.7", "35.1, 13.5", "'paper.rows.mib"),
        ("13.5", "low", "'paper.rows.mib.1' is 'low'"),
        ("13.5", "135", "'paper.rows.mib.1' is 135"),
        ("13.5", "-1", "'paper.rows.mib.1' is -1"),
        ("13.5", ".nan", "'paper.rows.mib.1' is nan"),
        ("Forgets more than its paper says.", "[1]", "'remarks.ewc' is [1]"),
        ("paper:\n", "paper: none\nmore:\n", "'more'"),
        ("paper:", "paper: [", "is not valid YAML"),
    ],
)
def test_file_that_is_wrong_is_refused_by_its_name(read, tmp_path, old, new, message):
    assert GOOD.count(old) == 1
    with pytest.raises(UserError) as caught:
        read(GOOD.replace(old, new))
    assert str(tmp_path / "remarks.yaml") in str(caught.value) and message in str(caught.value)


def test_paper_that_is_no_section_is_refused(read):
    with pytest.raises(UserError, match=r"remarks\.yaml: 'paper' is 'none'"):
        read("paper: none")
