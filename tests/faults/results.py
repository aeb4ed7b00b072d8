"""The results of the matrix as a page for people, in Markdown: a row per role and fault, a column per phase."""
import table

NOT_RUN = "not run"
HEAD = """# Results of the fault matrix

Written by `deploy/faults.sh`, which tries every cell on real runs of a tiny model; what is expected of each, and why, stands in
`tests/faults/table.txt`, and `deploy/faults.sh --list` prints it. What the system promises: [reliability.md](reliability.md).

| word | means |
|---|---|
| same | the run ended with 0 and the whole state of an undisturbed run, bit for bit: every file of every checkpoint, the metrics of every step |
| ends N | the run ended with code N and the named error, as expected; started again, it ended as `same` |
| same or N | one of both was expected, and came; where N is `any`, no run may end with 0 and another state |
| – | there is no such cell; the table says why |
| WRONG, known | not as expected; known to be wrong, with the reason in the table |
| skipped, not run | this machine cannot make the fault; the cell was not tried |

A pause takes 30 s where everything is tried, and 6 s in `faults_pick_test` and for the reward service, which is asked again within 8 s.

"""
WHOLE, LATER = "Everything: ", "Some cells later, by themselves: "


def shown(outcome, result, before):
    """A cell of the table; one that was not tried keeps what stood there before."""
    if outcome.kind == "none":
        return "–"
    if result is None:
        return NOT_RUN if before == "–" else before
    if result.verdict == "as expected":
        return {"same": "same", "ends": f"ends {outcome.code}", "may": f"same or {outcome.code_text()}"}[outcome.kind]
    return {"skipped": "skipped", "wrong": "WRONG", "known": "known"}[result.verdict]


def rows_of(page):
    """{(role, fault): words} of an earlier page."""
    rows = {}
    for line in page.splitlines():
        words = [word.strip() for word in line.strip("|").split("|")]
        if len(words) == 2 + len(table.PHASES) and words[0] in table.ROLES:
            rows[words[0], words[1]] = words[2:]
    return rows


def seeds_line(done, page):
    """What came of random kills; an earlier page's line where none was tried."""
    seeds = [result for result in done if result.cell.startswith("seed/")]
    if not seeds:
        return next((line for line in page.splitlines() if line.startswith("Random kills: ")), "Random kills: not run.")
    good = sum(result.verdict == "as expected" for result in seeds)
    return f"Random kills: {len(seeds)} seeds, {good} with the state of an undisturbed run."


def about_lines(page, about, whole):
    """What everything was tried on, and what some cells were tried on since."""
    if whole:
        return [f"{WHOLE}{about}."]
    earlier = next((line for line in page.splitlines() if line.startswith(WHOLE)), f"{WHOLE}commit and machine were not recorded.")
    return [earlier, "", f"{LATER}{about}."]


def markdown(outcomes, done, page="", about="", whole=True):
    """The whole page. `page`: the one before; `about`: commit and machine; `whole`: everything was tried."""
    before, by_name = rows_of(page), {result.cell: result for result in done}
    lines = ["| role | fault | " + " | ".join(table.PHASES) + " |", "|---" * (2 + len(table.PHASES)) + "|"]
    for role in table.ROLES:
        for fault in table.FAULTS:
            earlier = before.get((role, fault), [NOT_RUN] * len(table.PHASES))
            names = [f"{role}/{fault}/{phase}" for phase in table.PHASES]
            row = [shown(outcomes[name], by_name.get(name), word) for name, word in zip(names, earlier)]
            if any(word != "–" for word in row):
                lines.append(f"| {role} | {fault} | " + " | ".join(row) + " |")
    return HEAD + "\n".join(lines + ["", seeds_line(done, page), "", *about_lines(page, about, whole)]) + "\n"
