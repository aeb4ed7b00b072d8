// tandem-parity: compares the log-probs of rollout and trainer on a checkpoint. Started by
// tandemctl parity.
#include <iostream>

#include <CLI/CLI.hpp>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/process/cores.h"
#include "parity/parity.h"
#include "trainer_worker/losses/policy_loss.h"

namespace {
constexpr int kMostThreads = 1024;
}

int main(int argc, char** argv) {
  tandem::ParityOptions options;
  options.threads = static_cast<int>(tandem::AllowedCores().size());
  bool as_json = false;
  CLI::App app(
      "Compares the log-probs of decoding, prefilling and the trainer's forward, bit by bit.");
  app.set_version_flag("--version", tandem::BuildText(tandem::ThisBuild(), "tandem-parity"));
  app.add_option("--model", options.model_dir, "HF checkpoint directory")->required();
  app.add_option("--tokens", options.tokens, "response tokens to compare, at least")
      ->capture_default_str();
  app.add_option("--response-length", options.response_tokens, "tokens per response")
      ->capture_default_str();
  app.add_option("-n", options.samples_per_prompt, "responses per prompt")->capture_default_str();
  app.add_option("--max-num-seqs", options.max_num_seqs, "sequences decoded together")
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", options.max_num_batched_tokens, "rows of a pass")
      ->capture_default_str();
  app.add_option("--temperature", options.temperature, "of the sampling")->capture_default_str();
  app.add_option("--seed", options.seed, "of the sampling")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--threads", options.threads, "compute threads")
      ->check(CLI::Range(1, kMostThreads))
      ->capture_default_str();
  app.add_flag("--json", as_json, "print one line of JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  tandem::InitLog("parity", -1);
  tandem::SetLogLevel(tandem::LogLevel::kWarn);  // the report has the information of the log lines
  tandem::UseOneTorchThread();
  const auto report = tandem::RunParity(options);
  if (!report.ok()) {
    std::cerr << "tandem-parity: " << report.status().message() << "\n";
    return 1;
  }
  std::cout << (as_json ? tandem::ParityJson(*report) : tandem::ParityText(*report));
  return report->ok() ? 0 : 1;
}
