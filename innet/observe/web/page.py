"""The elements of the page in one browser."""

from nicegui import ui

from innet.observe.view import View
from innet.observe.web import jobs, tree
from innet.observe.web.source import Source
from innet.rpc.words import left_out

_LINES = 300
_COLORS = {"warning": "text-warning", "error": "text-negative", "critical": "text-negative"}


class Page:
    """The page in one browser. It shows what its source has.

    With an `owner` it leaves out the jobs of others, and the log, which is about all jobs.
    """

    def __init__(self, source: Source, controller: str, owner: str | None = None) -> None:
        self._source, self._owner = source, owner
        self._taken = 0
        self._known: set[str] = set()
        with ui.row().classes("items-baseline gap-4"):
            ui.label(f"innet controller {controller}").classes("text-h5")
            self._status = ui.label("reading the controller")
        _heading("Switches")
        self._tree = ui.tree([]).props("dense no-connectors no-nodes-label='no switches'")
        _heading("Jobs")
        columns = [
            {"name": each, "label": each, "field": each, "align": "left"} for each in jobs.COLUMNS
        ]
        self._jobs = ui.table(rows=[], columns=columns, row_key=jobs.COLUMNS[0]).props(
            "dense flat wrap-cells no-data-label='no jobs'"
        ).classes("w-full")  # fmt: skip
        self._left_out = ui.label()
        self._log = self._log_below() if owner is None else None

    def _log_below(self) -> ui.log:
        _heading("Log")
        return ui.log(max_lines=_LINES).classes("w-full h-80")

    def update(self) -> None:
        """Show what is new."""
        source = self._source
        at = source.at.strftime("%Y-%m-%d %H:%M:%S UTC") if source.at else ""
        self._status.set_text(f"{source.problem}; this is old" if source.problem else at)
        self._status.classes(
            add="text-negative" if source.problem else "",
            remove="" if source.problem else "text-negative",
        )
        if self._log:
            self._show_log(self._log)
        if source.view:
            self._show(source.view if self._owner is None else source.view.for_owner(self._owner))

    def _show(self, view: View) -> None:
        self._show_tree(tree.nodes(view))
        self._jobs.rows = [jobs.row(each) for each in view.jobs]
        self._left_out.set_text(left_out(view.left_out))

    def _show_tree(self, nodes: list[tree.Node]) -> None:
        self._tree.props["nodes"] = nodes
        now = set(tree.every_id(nodes))
        if new := now - self._known:  # what the reader has folded stays folded
            self._tree.expand(sorted(new))
        self._known |= new

    def _show_log(self, log: ui.log) -> None:
        for each in self._source.entries_since(self._taken):
            line = f"{each.timestamp} {each.level:8} {each.event} {each.facts}".rstrip()
            log.push(line, classes=_COLORS.get(each.level))
        self._taken = self._source.taken


def _heading(text: str) -> None:
    ui.label(text).classes("text-h6 mt-4")
