// What a script would pass to verl, without running it. The scripts are our own words in the shapes
// that verl's have.
#include "controller/cli/verl/shell_evaluator.h"

#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/verl/shell_arithmetic.h"

namespace tandem {
namespace {

absl::StatusOr<ScriptCommand> Evaluate(const std::string& script,
                                       std::vector<std::string> arguments = {},
                                       std::map<std::string, std::string> environment = {}) {
  return EvaluateScript(
      script, {.environment = [environment](const std::string& name) -> std::optional<std::string> {
                 const auto found = environment.find(name);
                 return found == environment.end() ? std::nullopt
                                                   : std::optional<std::string>(found->second);
               },
               .arguments = std::move(arguments),
               .now = absl::FromUnixSeconds(0)});
}

// The arguments of the command that `script`, followed by a command of `words`, starts.
std::string Words(const std::string& script,
                  const std::string& words,
                  std::vector<std::string> arguments = {},
                  std::map<std::string, std::string> environment = {}) {
  const auto command = Evaluate(script + "\npython3 -m verl.trainer.main_ppo " + words + "\n",
                                std::move(arguments), std::move(environment));
  INFO(command.status().ToString());
  REQUIRE(command.ok());
  std::vector<std::string> texts;
  for (const ScriptArgument& argument : command->arguments) texts.push_back(argument.text);
  return fmt::format("{}", fmt::join(texts, "|"));
}

std::string ErrorOf(const std::string& script) {
  const auto command = Evaluate(script);
  REQUIRE_FALSE(command.ok());
  return std::string(command.status().message());
}

TEST_CASE("continued lines, quotes and comments are bash's") {
  const auto command = Evaluate(
      "set -x\n\n"
      "python3 -m verl.trainer.main_ppo \\\n"
      "    a.b='x y' \\\n"
      "    c='[\"console\",\"wandb\"]' d=\"q\" e=f\\ g # h=i\n"
      "echo done\n");
  REQUIRE(command.ok());
  REQUIRE(command->line == 3);
  REQUIRE(command->arguments.size() == 4);
  REQUIRE(command->arguments[0].text == "a.b=x y");
  REQUIRE(command->arguments[0].line == 4);
  REQUIRE(command->arguments[1].text == "c=[\"console\",\"wandb\"]");
  REQUIRE(command->arguments[2].text == "d=q");
  REQUIRE(command->arguments[3].text == "e=f g");
}

TEST_CASE("variables, defaults and the environment are expanded") {
  const std::string script = "A=${A:-3}\nexport B=\"$A-${A}\"\nC=$((2 * (A + 1)))\nD=\nunset E\n";
  REQUIRE(Words(script, "a=$A b=$B c=${C} d=${D:-x}${D-y} e=${E:-gone}") ==
          "a=3|b=3-3|c=8|d=x|e=gone");
  REQUIRE(Words(script, "a=$A e=${E:-gone} h=$HOME ~/x", {},
                {{"A", "9"}, {"E", "1"}, {"HOME", "/h"}}) == "a=9|e=gone|h=/h|/h/x");
  REQUIRE(
      Words("X=a.b.sh\nY=on",
            "${X%.*} ${X%%.*} ${X#*.} ${X##*.} ${X/a/c} ${Y:+-}${Z:+-}z ${#X} ${X:2:1} ${Y^^}") ==
      "a.b|a|b.sh|sh|c.b.sh|-z|6|b|ON");
  REQUIRE(Words("X='a b'", "$X \"$X\" '$X' x$X") == "a|b|a b|$X|xa|b");
}

TEST_CASE("arrays keep their words, and grow") {
  const auto command = Evaluate(
      "DATA=(\n  a=1 # first\n  b=\"x y\"\n)\nEXTRA=()\nif [ 1 = 1 ]; then EXTRA+=(c=3); fi\n"
      "LAUNCH=(uv run python3)\n"
      "\"${LAUNCH[@]}\" -m verl.trainer.main_ppo \"${DATA[@]}\" ${EXTRA[@]} \"${NONE[@]}\" \"$@\" "
      "2>&1 | tee x.log\n",
      {"d=4", "e f"});
  INFO(command.status().ToString());
  REQUIRE(command.ok());
  REQUIRE(command->arguments.size() == 5);
  REQUIRE(command->arguments[1].text == "b=x y");
  REQUIRE(command->arguments[1].line == 3);
  REQUIRE(command->arguments[2].text == "c=3");
  REQUIRE(command->arguments[3].text == "d=4");
  REQUIRE(command->arguments[3].line == 0);
  REQUIRE(command->arguments[4].text == "e f");
  REQUIRE(Words("A=(x y z)", "${#A[@]} ${A[1]} ${A[-1]} \"${@:2}\" $1 $#", {"p", "q", "r"}) ==
          "3|y|z|q|r|p|3");
}

TEST_CASE("if, case, for and functions decide") {
  const std::string script =
      "case \"${DEVICE:-gpu}\" in\n  gpu | cuda)\n    N=8\n    ;;\n  npu) N=16 ;;\n  *) echo \"no "
      "$DEVICE\" >&2; exit 1 ;;\n"
      "esac\nif [ $N -gt 8 ] && [ -n \"$N\" ]; then M=big; elif [[ $N == 8 && ! -z $N ]]; then "
      "M=eight; else M=small; fi\n"
      "for x in 1 2 3; do S+=$x; done\nadd() { T=\"$1+$2\"; }\nadd a b\n"
      "if (( N % 3 != 2 )); then M=odd; fi\n{ [ \"$N\" = 8 ] || [ \"$N\" = 4 ]; } && U=yes\n";
  REQUIRE(Words(script, "$N $M $S $T $U") == "8|eight|123|a+b|yes");
  REQUIRE(Words(script, "$N $M", {}, {{"DEVICE", "npu"}}) == "16|odd");
  const auto refused =
      Evaluate(script + "python3 -m verl.trainer.main_ppo\n", {}, {{"DEVICE", "tpu"}});
  REQUIRE(refused.status().message() ==
          "6: the script ends here, before it starts verl.trainer.main_ppo: no tpu");
}

TEST_CASE("no command is run, and what only one could tell is refused by name where it is needed") {
  const std::string probe =
      "D=${D:-$(python3 -c 'import x' && echo npu || echo gpu)}\nLOG=`hostname`\n";
  REQUIRE(Words(probe, "a=1 > $LOG.txt") == "a=1");
  REQUIRE(Words(probe, "a=$D", {}, {{"D", "gpu"}}) == "a=gpu");
  REQUIRE(ErrorOf(probe + "python3 -m verl.trainer.main_ppo a=$D\n")
              .starts_with("3: \"a=\" needs the output of `python3 -c 'import x' && echo npu || "
                           "echo gpu`, which is not run"));
  REQUIRE(ErrorOf(probe + "if [ $D = npu ]; then exit; fi\n")
              .starts_with("3: a condition needs the output of"));
  REQUIRE(
      ErrorOf("if nvidia-smi; then A=1; fi\n").starts_with("1: a condition depends on a command"));
  REQUIRE(ErrorOf("eval \"$X\"\n").starts_with("1: eval sets what only running it"));
  REQUIRE(Words("", "t=$(date +%Y) u=$(date +'%m')x") == "t=1970|u=01x");
}

TEST_CASE("a range counts arguments from 1 and an array from 0") {
  const std::string array = "A=(x y z)";
  REQUIRE(Words(array, "\"${A[@]:1}\" ${A[@]:0:1} ${A[*]:2} ${A[@]: -1} ${#A[*]}") ==
          "y|z|x|z|z|3");
  REQUIRE(Words(array, "${A[@]:3} ${A[@]: -4} a") == "a");
  REQUIRE(Words("", "\"${@:2}\" ${@:1:1} ${@: -1} ${*:3}", {"p", "q", "r"}) == "q|r|p|r|r");
  for (const std::string name : {"@", "A[@]", "A[0]"}) {
    REQUIRE(Words(array,
                  "${" + name + ": -9223372036854775807 - 1}a${" + name + ":9223372036854775807}",
                  {"p"}) == "a");
  }
  REQUIRE(ErrorOf("python3 -m verl.trainer.main_ppo ${@:0}\n").find("the name of the script") !=
          std::string::npos);
}

TEST_CASE("break, continue and return skip what bash skips") {
  const std::string loops =
      "for i in 1 2 3 4; do\n  if [ $i = 2 ]; then continue; fi\n  [ $i = 4 ] && break\n  S+=$i\n"
      "done\nfor i in 1 2; do for j in a b; do [ $j = b ] && continue 2; T+=$i$j; done; T+=x; "
      "done\n"
      "for i in 1 2; do for j in a b; do U+=$i$j; break 7; done; U+=x; done\n"
      "while true; do V+=v; if [ ${#V} = 3 ]; then break; fi; done\n";
  REQUIRE(Words(loops, "$S $T $U $V") == "13|1a2a|1a|vvv");
  const std::string calls =
      "f() {\n  for i in 1 2; do\n    if [ $1 = $i ]; then return 3; fi\n  done\n  A+=no$1\n}\n"
      "f 1 || B=failed\nf 5 && C=fine\ng() { [ 1 = 2 ]; return; A+=x; }\ng || D=last\n"
      "for i in 1 2; do f 2; E+=e; done\n";
  REQUIRE(Words(calls, "$A $B $C $D $E") == "no5|failed|fine|last|ee");
  REQUIRE(Words("shift 2", "$1 $#", {"p", "q", "r"}) == "r|1");
  REQUIRE(ErrorOf("A=1\nbreak\n").starts_with("2: break is outside of a loop"));
  REQUIRE(ErrorOf("f() { continue; }\nfor i in 1; do f; done\n").starts_with("1: continue is out"));
  REQUIRE(ErrorOf("return 1\n").starts_with("1: return is outside of a function"));
  REQUIRE(ErrorOf("for i in 1; do break 0; done\n").find("1 or more") != std::string::npos);
  REQUIRE(ErrorOf("let A=1\n").starts_with("1: let sets what only running it"));
  REQUIRE(ErrorOf("printf -v A %s x\n").starts_with("1: printf sets what only running it"));
}

TEST_CASE("a file that a script writes is no part of its commands") {
  REQUIRE(Words("cat > a.py << EOF\nif x: (\nEOF\nmkdir -p logs\npython a.py\nfor v in $(env | "
                "grep X); do unset \"$v\"; done",
                "a=1") == "a=1");
}

TEST_CASE("a script that cannot be followed is refused with its line") {
  REQUIRE(ErrorOf("A=1\nif true\n").starts_with("3: then is missing"));
  REQUIRE(ErrorOf("A='x\n").find("not closed") != std::string::npos);
  REQUIRE(ErrorOf("echo hello\n") == " no command of it starts verl.trainer.main_ppo");
  REQUIRE(ErrorOf("python3 -m recipe.dapo.main_dapo a=1\n").find("recipe.dapo.main_dapo") !=
          std::string::npos);
  REQUIRE(ErrorOf("while true; do A=1; done\n").find("makes no end") != std::string::npos);
  REQUIRE(ErrorOf("A=x\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do A=$A$A; done\n")
              .find("too long") != std::string::npos);
  REQUIRE(ErrorOf("f() { f; }\nf\n").find("too deeply") != std::string::npos);
  REQUIRE(ErrorOf("A=" + std::string(4000, '$') + std::string(4000, '{') + "\n").size() < 200);
  REQUIRE(ErrorOf("python3 -m verl.trainer.main_ppo a=1\npython3 -m verl.trainer.main_ppo a=2\n")
              .find("again, after line 1") != std::string::npos);
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += "${A:-";
  REQUIRE(ErrorOf("B=" + nested + "\n").find("not closed") != std::string::npos);
}

TEST_CASE("a variable that is not set is empty, and noted") {
  const auto command = Evaluate("python3 -m verl.trainer.main_ppo a=$MISSING\n");
  REQUIRE(command.ok());
  REQUIRE(command->arguments[0].text == "a=");
  REQUIRE(command->notes == std::vector<std::string>{"line 1: MISSING is not set, and so empty"});
}

TEST_CASE("arithmetic has bash's operators") {
  const auto value = [](const std::string& text) {
    const auto number = ShellArithmetic(text, [](const std::string&) { return std::string("7"); });
    return number.ok() ? fmt::format("{}", *number) : "no";
  };
  REQUIRE(value("1 + 2 * 3 - -4") == "11");
  REQUIRE(value("(n + 1) / 3 % 2") == "0");
  REQUIRE(value("2 ** 3 ** 2") == "512");
  REQUIRE(value("n > 6 && n != 8 ? 10 : 20") == "10");
  REQUIRE(value("9223372036854775807 + 1") == "-9223372036854775808");
  REQUIRE(value("1 / 0") == "no");
  REQUIRE(value("1 +") == "no");
  REQUIRE(value(std::string(5000, '(')) == "no");
}

}  // namespace
}  // namespace tandem
