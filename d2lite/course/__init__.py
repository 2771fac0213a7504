"""A course with the book: hand out chapters without their answers, and grade what comes back.

`python -m d2lite course OUT` and `python -m d2lite grade FOLDER --course OUT` are the ways in; docs/teaching.md has
both on one page.
"""

from d2lite.course.course_folder import CourseFolder
from d2lite.course.grade import grade
from d2lite.course.hand_out import hand_out
from d2lite.course.nbgrader_export import export_nbgrader
from d2lite.course.otter_export import export_otter

__all__ = ["CourseFolder", "export_nbgrader", "export_otter", "grade", "hand_out"]
