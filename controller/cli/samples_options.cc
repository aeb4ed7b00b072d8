#include "controller/cli/samples_options.h"

#include <CLI/CLI.hpp>
#include <absl/strings/numbers.h>

namespace tandem {

// CLI11's own message about a word in place of a number does not mention steps.
std::string IsStep(const std::string& text) {
  int64_t step = 0;
  if (absl::SimpleAtoi(text, &step) && step >= 0) return "";
  return "\"" + text + "\" is not a step: give its number, or 0 for the newest that is finished";
}

void AddSamplesOptions(CLI::App* samples, SamplesOptions& options) {
  samples->add_option("--step", options.step, "step; without: the newest, or with --prompt all")
      ->check(IsStep);
  samples
      ->add_option("--prompt", options.prompt_id,
                   "samples of this prompt alone, by the number in the column \"prompt id\"")
      ->check(CLI::PositiveNumber);
  samples->add_flag("--eval", options.evaluation,
                    "responses of the validation after the step; without --step: of the newest");
  samples->add_flag("--evicted", options.evicted,
                    "samples that dynamic sampling dropped in the step");
  samples->add_option("--limit", options.limit, "number of samples to show, at most")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  samples->add_option("--offset", options.offset, "number of samples to skip")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  samples->add_option(
      "--where", options.where,
      "only samples of which all this holds: reward<=0 and length>200 and kind=mixed");
  samples->add_option("--contains", options.contains,
                      "only samples with this text in prompt or response, letter for letter");
  samples->add_option("--sort", options.sort,
                      "a field of --where, with - in front for the largest first: -length");
  samples->add_option("--width", options.width, "characters per text; 0: all")
      ->capture_default_str();
  samples
      ->add_option("--undone-by", options.undone_by,
                   "samples of the step that this generation has undone (steps --undone)")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace tandem
