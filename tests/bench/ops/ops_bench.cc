// tandem-ops-bench [linear|attention|rows|head|backward|adamw|all] [--threads N] [--alone] [--cpu]:
// the CPU ops at the shapes of SmolLM2-135M, the best of several runs. Weights stay in cache where
// they fit. Every op stands beside what LibTorch offers, in the same run and on as many threads;
// `ratio` is the fastest counterpart's time to ours and that counterpart's name, `bound` the lesser
// of the instruction peak and what reading the weights once allows, `share` our part of it.
// --alone leaves the counterparts out; --cpu counts the process's CPU seconds: with one thread, for
// a busy machine.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/stopwatch.h"

namespace {
struct Part {
  const char* name;
  void (*run)(const tandem::bench::Settings&);
};
constexpr Part kParts[] = {
    {"linear", tandem::bench::BenchLinear},     {"attention", tandem::bench::BenchAttention},
    {"rows", tandem::bench::BenchRows},         {"head", tandem::bench::BenchHead},
    {"backward", tandem::bench::BenchBackward}, {"adamw", tandem::bench::BenchAdamW}};
}  // namespace

int main(int argc, char** argv) {
  std::string which = "all";
  tandem::bench::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--threads" && i + 1 < argc) {
      settings.threads = std::max(1, std::atoi(argv[++i]));
    } else if (argument == "--alone") {
      settings.counterparts = false;
    } else if (argument == "--cpu") {
      tandem::bench::g_clock = CLOCK_PROCESS_CPUTIME_ID;
    } else {
      which = argument;
    }
  }
  tandem::bench::SetCounterpartThreads(settings.threads);
  bool known = false;
  for (const Part& part : kParts) {
    if (which != "all" && which != part.name) continue;
    known = true;
    part.run(settings);
  }
  if (!known) std::fprintf(stderr, "error: no part is called %s\n", which.c_str());
  return known ? 0 : 64;
}
