// Expressions against what Python and jinja2 print.
#include <utility>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/text/jinja/template.h"

namespace tandem::testing {
namespace {

const char kVariables[] =
    R"({"n": 7, "f": 2.5, "l": [3, 1, 2], "d": {"b": 2, "a": [1.0, null, true]},
  "s": " H\u00e9llo ", "empty": [], "users": [{"name": "Bob", "age": 30}, {"name": "al", "age": 25}]})";

absl::StatusOr<std::string> RenderExpression(const std::string& source) {
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto variables = jinja::Value::FromJson(nlohmann::ordered_json::parse(kVariables));
  const absl::Time now =
      absl::FromCivil(absl::CivilSecond(2026, 7, 4, 9, 5, 0), absl::UTCTimeZone());
  return parsed->Render(variables->mapping(), now, absl::UTCTimeZone());
}

void CheckExpressions(const std::vector<std::pair<const char*, const char*>>& cases) {
  for (const auto& [expression, expected] : cases) {
    INFO(expression);
    const auto text = RenderExpression(std::string("{{ ") + expression + " }}");
    INFO(text.status().ToString());
    REQUIRE(text.ok());
    REQUIRE(*text == expected);
  }
}

void CheckFails(const std::vector<std::pair<const char*, const char*>>& cases) {
  for (const auto& [expression, reason] : cases) {
    INFO(expression);
    const auto text = RenderExpression(std::string("{{ ") + expression + " }}");
    REQUIRE(!text.ok());
    REQUIRE_THAT(std::string(text.status().message()), Catch::Matchers::Contains(reason));
  }
}

}  // namespace

TEST_CASE("Values print as Python's str and repr", "[text][jinja]") {
  CheckExpressions({{"true", "True"},
                    {"none", "None"},
                    {"d", "{'b': 2, 'a': [1.0, None, True]}"},
                    {"(1,)", "(1,)"},
                    {"[\"it's\", 'q\"q', '\\n\\x00']", "[\"it's\", 'q\"q', '\\n\\x00']"},
                    {"1e16", "1e+16"},
                    {"0.00001", "1e-05"},
                    {"0.1 + 0.2", "0.30000000000000004"},
                    {"100.0", "100.0"},
                    {"missing", ""}});
}

TEST_CASE("Operators follow Python's rules and jinja2's precedence", "[text][jinja]") {
  CheckExpressions({{"7 / 2", "3.5"},
                    {"6 / 2", "3.0"},
                    {"-7 // 2", "-4"},
                    {"-7 % 3", "2"},
                    {"2 ** -1", "0.5"},
                    {"1 ~ 2 + 3 ~ 'x'", "123x"},
                    {"'a' * 3", "aaa"},
                    {"[1] + [2]", "[1, 2]"},
                    {"1 < 2 < 3", "True"},
                    {"not 1 in l", "False"},
                    {"'x' or 'y'", "x"},
                    {"empty and 1", "[]"},
                    {"-1 | abs", "1"},
                    {"1 if n > 5 else 2", "1"},
                    {"1 if n > 50", ""},
                    {"'%s is %.2f and %05d' % ('a', 1.5, 42)", "a is 1.50 and 00042"},
                    {"'b' in d and 'q' not in d", "True"}});
}

TEST_CASE("Subscripts, slices and methods give Python's results", "[text][jinja]") {
  CheckExpressions({{"l[-1]", "2"},
                    {"l[10]", ""},
                    {"l[::-1]", "[2, 1, 3]"},
                    {"s[2]", "\u00e9"},
                    {"s.strip()[:2]", "H\u00e9"},
                    {"d.items() | list", "[('b', 2), ('a', [1.0, None, True])]"},
                    {"d.get('z', 'no')", "no"},
                    {"'a,b,c'.split(',', 1)", "['a', 'b,c']"},
                    {"' a  b '.split()", "['a', 'b']"},
                    {"'x.y'.rpartition('.')", "('x', '.', 'y')"},
                    {"'{} {x:>3}|{0!r}'.format('a', x=1)", "a   1|'a'"},
                    {"'abc'.startswith(('x', 'a'))", "True"},
                    {"'xxaxx'.strip('x')", "a"},
                    {"'a\\r\\nb\\n'.splitlines()", "['a', 'b']"}});
}

TEST_CASE("Filters give jinja2's results", "[text][jinja]") {
  CheckExpressions(
      {{"s | trim | upper", "H\u00c9LLO"},
       {"l | sort(reverse=true) | join(', ')", "3, 2, 1"},
       {"users | sort(attribute='name') | map(attribute='name') | list", "['al', 'Bob']"},
       {"users | selectattr('age', 'ge', 30) | map(attribute='name') | first", "Bob"},
       {"l | reject('odd') | list", "[2]"},
       {"'yes' if l | select('gt', 9)", "yes"},  // a generator is true
       {"d | tojson", "{\"b\": 2, \"a\": [1.0, null, true]}"},
       {"[1, {}] | tojson(indent=2)", "[\n  1,\n  {}\n]"},
       {"'\u00e9<' | tojson", "\"\u00e9<\""},
       {"d | dictsort | first", "('a', [1.0, None, True])"},
       {"missing | default('x')", "x"},
       {"'' | default('x', true)", "x"},
       {"'3.7' | int", "3"},
       {"2.5 | round", "2.0"},
       {"'a\\n\\nb' | indent(2)", "a\n\n  b"},
       {"[1, 2, 3] | batch(2) | list", "[[1, 2], [3]]"},
       {"users | sum(attribute='age')", "55"},
       {"'hello wORLD' | title", "Hello World"},
       {"'\u039f\u0394\u039f\u03a3-\u03a3\u03a3' | title", "\u039f\u03b4\u03bf\u03c2-\u03a3\u03c3"},
       {"\"\u0391\u0391\u03a3'\u0391\" | title", "\u0391\u03b1\u03c3'\u03b1"}});
}

TEST_CASE("Tests tell Python's types apart", "[text][jinja]") {
  CheckExpressions(
      {{"true is number and true is not integer", "True"},
       {"'s' is iterable and 's' is sequence and s is not mapping", "True"},
       {"missing is undefined and missing is iterable and none is not iterable", "True"},
       {"none is none and n is odd and 9 is divisibleby 3", "True"},
       {"d is mapping and l is not string and f is float", "True"},
       {"'\u00aa' is lower and 'a\U0001d400' is not lower", "True"},
       {"'\U0001d400' is upper and 'A\u01c5'.isupper()", "False"},
       {"1 is sameas true", "False"}});
}

TEST_CASE("Globals include the injected clock", "[text][jinja]") {
  CheckExpressions({{"strftime_now('%d %b %Y %H:%M')", "04 Jul 2026 09:05"},
                    {"range(1, 8, 3) | list", "[1, 4, 7]"},
                    {"dict(a=1, b=2)", "{'a': 1, 'b': 2}"},
                    {"namespace(x=1).x", "1"}});
}

TEST_CASE("Expressions that Python refuses are errors with the reason", "[text][jinja]") {
  CheckFails({{"missing.a", "'missing' is undefined"},
              {"d.zz.a", "'dict object' has no attribute 'zz'"},
              {"missing + 1", "'missing' is undefined"},
              {"'a' + 1", "can only concatenate str"},
              {"1 / 0", "division by zero"},
              {"1 < 'a'", "not supported between instances"},
              {"l.append(1)", "templates may not"},
              {"missing()", "'missing' is undefined"},
              {"n()", "not callable"},
              {"1 | nofilter", "nofilter"},
              {"1 is notest", "notest"},
              {"raise_exception('why')", "why"},
              {"9223372036854775807 + 1", "64 bits"},
              {"range(10 ** 9)", "Range too big"},
              {"'a' * 10 ** 12", "too large"},
              {"1 +", "unexpected"},
              {"( 1 ]", "unexpected ']'"}});
}

}  // namespace tandem::testing
