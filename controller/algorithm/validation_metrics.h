// The numbers of a validation pass under verl's names (verl process_validation_metrics).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem {

// The judged answers to one prompt, in order of sample.
struct ValidationPrompt {
  std::string data_source;
  uint64_t data_row = 0;  // keys the resampling: another one for each prompt
  int64_t samples = 0;    // 1 to 4096
  // One value per sample; fewer where the reward function did not give the key for all.
  std::map<std::string, std::vector<double>> values;  // "reward" and the function's further keys
  // What each sample answers; fewer than samples: not known of all, so that there is no majority.
  std::vector<std::string> predictions;
};

struct ValidationResult {
  // <section>/<data source>/<key>/<metric>: means over the source's prompts of each prompt's
  //   mean@N, std@N                           over its N samples;
  //   best@k, worst@k, maj@k /mean and /std   over 1000 resamples of k of them (Resampler);
  //   pass@k                                  PassAtK, a value of 1 or more being right;
  // k being SubsetSizes(N). The section is val-core for mean, best, maj and pass @N of the key acc
  // if there is one, else of reward; val-aux for everything else.
  std::map<std::string, double> metrics;
  // Keys of which a source has no metrics, as some sample of it came without: "<source>: <key>".
  std::vector<std::string> incomplete;
};

ValidationResult SummarizeValidation(const std::vector<ValidationPrompt>& prompts);

}  // namespace tandem
