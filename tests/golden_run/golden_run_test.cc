// Ten steps of tiny models give the same text on every machine of a numerics class: the files
// beside this one. After an intended change of the numerics, write them again
// (docs/reference/numerics.md):
//   TANDEM_WRITE_GOLDEN=1 build/tests/test_golden -# "[#golden_run_test]"
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/process/threads.h"
#include "tests/golden_run/tiny_run.h"

namespace tandem::testing {
namespace {

constexpr int kSteps = 10;
constexpr const char* kIsas[] = {"amx", "avx512bf16", "avx512f", "avx2", "amx-emulated"};
constexpr const char* kModels[] = {"llama", "qwen2", "qwen3"};

std::string GoldenFile(const std::string& numerics_class) {
  return "tests/golden_run/" + numerics_class + ".txt";  // tests run in the repository root
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// "" where this machine lacks the instructions.
std::string RunOn(const std::string& isa, int threads, std::string* numerics_class) {
  setenv("TANDEM_CPU_ISA", isa.c_str(), 1);
  const auto ops = CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1));
  if (!ops.ok()) return "";
  REQUIRE((*ops)->kernel_set() == isa);
  *numerics_class = (*ops)->numerics_class();
  std::string text;
  for (const char* model : kModels) {
    TinyRun run({.model_type = model, .threads = threads});
    REQUIRE(run.numerics_class() == *numerics_class);
    text += fmt::format("{}\n", model);
    for (int step = 0; step < kSteps; ++step) text += run.Step();
  }
  return text;
}

// Line by line, so that a failure names the first step that differs.
void RequireSameText(const std::string& actual, const std::string& expected) {
  std::istringstream actual_lines(actual), expected_lines(expected);
  std::string model, got, want;
  while (std::getline(expected_lines, want)) {
    REQUIRE(std::getline(actual_lines, got));
    if (!want.starts_with("step")) model = want;
    INFO("model " << model);
    REQUIRE(got == want);
  }
  REQUIRE(actual == expected);
}

TEST_CASE("ten steps of tiny models are the golden text on every kernel set") {
  const bool write = std::getenv("TANDEM_WRITE_GOLDEN") != nullptr;
  std::map<std::string, std::string> written;  // by class
  int threads = 1, sets = 0;
  for (const std::string isa : kIsas) {
    std::string numerics_class;
    const std::string text = RunOn(isa, threads, &numerics_class);
    if (text.empty()) {
      WARN("this machine cannot run " << isa);
      continue;
    }
    INFO(isa << " with " << threads << " threads, class " << numerics_class);
    threads = 3 - threads;
    ++sets;
    if (!write) {
      RequireSameText(text, ReadText(GoldenFile(numerics_class)));
    } else if (written.emplace(numerics_class, text).second) {
      std::ofstream(GoldenFile(numerics_class), std::ios::binary) << text;
    } else {
      RequireSameText(text, written.at(numerics_class));
    }
  }
  unsetenv("TANDEM_CPU_ISA");
  INFO("no kernel set ran, so that no text was compared");
  REQUIRE(sets > 0);
}

}  // namespace
}  // namespace tandem::testing
