// Statements, scopes and white space against what jinja2 renders.
#include <utility>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/text/jinja/template.h"

namespace tandem::testing {
namespace {

absl::StatusOr<std::string> RenderStatement(const std::string& source) {
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto variables =
      jinja::Value::FromJson(nlohmann::ordered_json::parse(R"({"l": [1, 2, 3], "n": 7})"));
  return parsed->Render(variables->mapping(), absl::UnixEpoch(), absl::UTCTimeZone());
}

void CheckStatements(const std::vector<std::pair<const char*, const char*>>& cases) {
  for (const auto& [source, expected] : cases) {
    INFO(source);
    const auto text = RenderStatement(source);
    INFO(text.status().ToString());
    REQUIRE(text.ok());
    REQUIRE(*text == expected);
  }
}

}  // namespace

TEST_CASE("White space around tags is trimmed as with trim_blocks and lstrip_blocks",
          "[text][jinja]") {
  CheckStatements({{"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
                   {"a  {% if true %}b{% endif %}", "a  b"},
                   {"  {{ n }}\n", "  7"},
                   {"a \n {%- if true -%} \n b \n {%- endif %} c", "ab c"},
                   {"  {%+ if true %}a{% endif +%}\nb", "  a\nb"},
                   {"  {# note #}\nx", "x"},
                   {"a {#- note -#} b", "ab"},
                   {"{% raw %}{{ x }} {% y %}{% endraw %}", "{{ x }} {% y %}"},
                   {"a\r\nb\r\n", "a\nb"}});
}

TEST_CASE("Loops offer loop, else, filters, break and continue", "[text][jinja]") {
  CheckStatements(
      {{"{% for x in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.last }} {% endfor %}",
        "12False 21False 30True "},
       {"{% for x in [] %}a{% else %}none{% endfor %}", "none"},
       {"{% for x in l if x > 1 %}{{ x }}/{{ loop.length }} {% endfor %}", "2/2 3/2 "},
       {"{% for x in l %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"},
       {"{% for x in l %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}", "12"},
       {"{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"},
       {"{% for x in l %}{{ loop.previtem }}-{{ loop.nextitem }} {% endfor %}", "-2 1-3 2- "},
       {"{% for x in [[1, [2]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "12"},
       {"{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
        "aTruebTrueaFalse"}});
}

TEST_CASE("Assignments in a loop stay there, except on a namespace", "[text][jinja]") {
  CheckStatements(
      {{"{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "1230"},
       {"{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ "
        "ns.x }}",
        "6"},
       {"{% if true %}{% set y = 1 %}{% endif %}{{ y }}", "1"},
       {"{% with n = 1 %}{{ n }}{% endwith %}{{ n }}", "17"},
       {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
       {"{% set t | upper %}a{{ n }}{% endset %}[{{ t }}]", "[A7]"},
       {"{% filter upper %}ab{% endfilter %}", "AB"},
       {"{% generation %}{{ n }}{% endgeneration %}", "7"}});
}

TEST_CASE("Macros take defaults, extra arguments and a caller", "[text][jinja]") {
  CheckStatements(
      {{"{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}", "1B32"},
       {"{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}",
        "(2,){'z': 3}"},
       {"{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(v) m() %}{{ v }}{{ n }}{% "
        "endcall %}",
        "<x7>"},
       {"{% macro m() %}{{ late }}{% endmacro %}{% set late = 1 %}{{ m() }}", "1"},
       {"{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "123"}});
}

TEST_CASE("Errors of a template name the line and the reason", "[text][jinja]") {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"a\n\n{{ missing.x }}", "line 3: 'missing' is undefined"},
      {"\n{% for x in none %}{% endfor %}", "line 2: 'NoneType' object is not iterable"},
      {"{% if true %}\n{{ raise_exception('bad role') }}{% endif %}", "line 2: bad role"},
      {"{% if true %}", "'endif' is missing"},
      {"{% unknown %}", "'unknown'"},
      {"{% include 'x' %}", "'include'"},
      {"{% break %}", "outside loop"},
      {"{{ 'open }}", "not closed"},
      {"{# open", "comment"},
      {"{% raw %}", "raw"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "too deeply"},
      {"\xff", "UTF-8"}};
  for (const auto& [source, reason] : cases) {
    INFO(source);
    const auto text = RenderStatement(source);
    REQUIRE(!text.ok());
    REQUIRE_THAT(std::string(text.status().message()), Catch::Matchers::Contains(reason));
  }
  REQUIRE(
      !RenderStatement("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}").ok());
}

}  // namespace tandem::testing
