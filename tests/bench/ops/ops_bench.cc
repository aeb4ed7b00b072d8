// tandem-ops-bench [linear|attention|backward|logits|all] [--threads N] [--alone] [--cpu]: the CPU
// ops at the shapes of SmolLM2-135M, the best of several runs. Weights stay in cache where they
// fit. Linear and attention stand beside what LibTorch offers, in the same run and on as many
// threads; `ratio` is the fastest counterpart's time to ours, `bound` the lesser of the instruction
// peak and what reading the weights once allows, `share` our part of it. --alone leaves the
// counterparts out; --cpu counts the process's CPU seconds: with one thread, for a busy machine.
#include <cstdlib>
#include <cstring>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/stopwatch.h"

int main(int argc, char** argv) {
  std::string which = "all";
  int threads = 2;
  bool counterparts = true;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--threads" && i + 1 < argc) {
      threads = std::max(1, std::atoi(argv[++i]));
    } else if (argument == "--alone") {
      counterparts = false;
    } else if (argument == "--cpu") {
      tandem::bench::g_clock = CLOCK_PROCESS_CPUTIME_ID;
    } else {
      which = argument;
    }
  }
  tandem::bench::SetCounterpartThreads(threads);
  const bool all = which == "all";
  if (all || which == "linear") tandem::bench::BenchLinear(threads, counterparts);
  if (all || which == "attention") tandem::bench::BenchAttention(threads, counterparts);
  if (all || which == "backward") tandem::bench::BenchBackward();
  if (all || which == "logits") tandem::bench::BenchLogits();
  return 0;
}
