"""Where a C++ source can be changed by one small step that a test should notice.

A step is one of the usual mutation operators: another comparison, arithmetic or logical operator, a negation
dropped, another small constant, min for max, break for continue, a statement taken out. The sources are formatted by
clang-format, so that a binary operator has a space on either side and the brackets of a template have none.
"""
import dataclasses
import re

OPERATORS = [
    (r"(?<= )<(?= )", "<="), (r"(?<= )<=(?= )", "<"), (r"(?<= )>(?= )", ">="), (r"(?<= )>=(?= )", ">"),
    (r"(?<= )==(?= )", "!="), (r"(?<= )!=(?= )", "=="), (r"(?<= )&&(?= )", "||"), (r"(?<= )\|\|(?= )", "&&"),
    (r"(?<=[\w)\]] )\+(?= )", "-"), (r"(?<=[\w)\]] )-(?= )", "+"), (r"(?<=[\w)\]] )\*(?= )", "/"),
    (r"(?<=[\w)\]] )/(?= )", "*"), (r"(?<=[\w)\]] )%(?= )", "*"),
    (r"(?<= )\+=(?= )", "-="), (r"(?<= )-=(?= )", "+="),
    (r"(?<=[ (])!(?=[\w(])", ""), (r"(?<=[(,] )-(?=\w)|(?<=\()-(?=\w)|(?<=return )-(?=\w)", ""),
    (r"\bmin\b(?=[(<])", "max"), (r"\bmax\b(?=[(<])", "min"), (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"\bcontinue(?=;)", "break"), (r"\bbreak(?=;)", "continue"),
    (r"(?<![\w.])0(?=[;,) ])", "1"), (r"(?<![\w.])1(?=[;,) ])", "2"), (r"(?<![\w.])2(?=[;,) ])", "3"),
    (r"(?<![\w.])0\.0f?(?=[;,) ])", "1.0"), (r"(?<![\w.])1\.0f?(?=[;,) ])", "2.0"),
]
# A call or an assignment that fills its line; a declaration begins with a type, and has a space before its name.
STATEMENT = re.compile(r"(?<=\n)( *)((?:\+\+|--)?[a-z*(][\w.\[\]>()*-]*"
                       r"(?:\(.*\)| [-+*/|]?= .*|)(?:\.\w+\(.*\))*;)(?=\n)")
# What only keeps memory, tells a user or checks this program itself: no test should notice.
UNSEEN = re.compile(r"\breserve\(|^Log|^TANDEM_CHECK")
NO_STATEMENT = re.compile(r"^(?:return|break|continue|default|delete|using)\b")
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|(?<=\n)#[^\n]*', re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Site:
    begin: int
    end: int
    before: str
    after: str
    line: int
    column: int

    def mutate(self, source):
        return source[:self.begin] + self.after + source[self.end:]

    def describe(self):
        return f"\"{self.before}\" taken out" if not self.after else f"\"{self.after}\" for \"{self.before}\""


def code_of(source):
    """The source of the same length with blanks for comments, texts and directives."""
    return HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)


def sites_of(source):
    """Every Site, in the order of the source; those in declarations of templates are left out."""
    code = code_of(source)
    found = []
    for pattern, after in OPERATORS:
        for match in re.finditer(pattern, code):
            line = code[code.rfind("\n", 0, match.start()) + 1:code.find("\n", match.start())].strip()
            if not UNSEEN.search(line):
                found.append((match.start(), match.end(), after))
    for match in STATEMENT.finditer(code):
        begins = code[:match.start()].rstrip()[-1:] in (";", "{", "}", ")", ":")  # else it goes on from a line above
        if begins and match[2].count("(") == match[2].count(")") and not (
                UNSEEN.search(match[2]) or NO_STATEMENT.match(match[2])):
            found.append((match.start(2), match.end(2) - 1, ""))
    return [Site(begin, end, source[begin:end], after, source.count("\n", 0, begin) + 1,
                 begin - source.rfind("\n", 0, begin))
            for begin, end, after in sorted(found)]
