// What k answers to a prompt are worth, estimated from n of them: bootstrap resamples and the
// unbiased pass@k. Pure functions, the same bits on every machine and after every resume.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem {

struct MeanStd {
  double mean = 0;
  double std = 0;  // of the population (divided by the count)
};

// In the order given: sums of doubles depend on it. Zeros of an empty list.
MeanStd MeanAndStd(const std::vector<double>& values);

// The k for which metrics @k are given: powers of two from 2 up to `samples`, and `samples` itself.
// Empty for one sample or none.
std::vector<int64_t> SubsetSizes(int64_t samples);

// The probability that at least one of k answers drawn without replacement out of `samples`, of
// which `right` are right, is right: 1 - C(samples - right, k) / C(samples, k), as a product
// (Chen et al. 2021, "Evaluating large language models trained on code", equation 1).
// 0 <= right <= samples, 1 <= k <= samples.
double PassAtK(int64_t samples, int64_t right, int64_t k);

// kResamples times `size` of a prompt's samples, drawn with replacement as verl's bootstrap_metric
// does, but with Philox numbers of (kSeed, stream, draw): give every prompt and size a stream of
// its own. An index is a 32-bit word times the number of samples over 2^32, so that a sample's
// probability is off by less than samples / 2^32.
class Resampler {
 public:
  static constexpr int64_t kResamples = 1000;
  static constexpr uint64_t kSeed = 42;  // verl's

  // Both at least 1.
  Resampler(int64_t samples, int64_t size, uint64_t stream);

  // Mean and deviation, over the resamples, of the largest and the smallest value in each.
  // `values`: one per sample.
  MeanStd Best(const std::vector<double>& values) const;
  MeanStd Worst(const std::vector<double>& values) const;
  // The same of the value of the answer that most of a resample gave: of the first draw with that
  // answer, and of the answer that was drawn first where several have as many votes (verl's
  // calc_maj_val). `answers`: one per sample, 0 <= answer < samples, equal for equal answers.
  MeanStd Majority(const std::vector<double>& values, const std::vector<int64_t>& answers) const;

  // The samples drawn, resample after resample: [kResamples * size].
  const std::vector<int32_t>& draws() const { return draws_; }

 private:
  const size_t size_;
  std::vector<int32_t> draws_;
};

// The numbers of a validation pass under verl's names (verl process_validation_metrics).

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
