"""A course with the book: hand out chapters without their answers, and grade what comes back.

`python -m d2lite course OUT` and `python -m d2lite grade FOLDER --course OUT` are the ways in; docs/teaching.md has
both on one page.
"""

import os
from typing import TYPE_CHECKING

from d2lite_course.grade import grade
from d2lite_course.hand_out import hand_out
from notebook_ranks.shared.lazy_names import lazy_names
from notebook_ranks.shared.own_code import not_own

if TYPE_CHECKING:
    from d2lite_course.course_folder import CourseFolder
    from d2lite_course.nbgrader_export import export_nbgrader
    from d2lite_course.otter_export import export_otter

__version__ = "0.2.0"
__all__, __getattr__, __dir__ = lazy_names(__name__)
not_own(os.path.dirname(os.path.abspath(__file__)))
