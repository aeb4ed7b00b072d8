// Metrics of k answers to a prompt, estimated from n of them: bootstrap resamples and the unbiased
// pass@k. Pure functions with the same bits on every machine and after every resume.
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

// Sums in the order given, because a sum of doubles depends on it. An empty list gives zeros.
MeanStd MeanAndStd(const std::vector<double>& values);

// Half the width of the 95 % confidence interval of the values' mean, where the mean is normally
// distributed: 1.96 times the deviation (divided by n - 1) over the square root of n. 0 for fewer
// than two values.
double HalfWidthOf95Percent(const std::vector<double>& values);

// The k for which metrics @k are given: powers of two from 2 up to `samples`, and `samples` itself.
// Empty for one sample or none.
std::vector<int64_t> SubsetSizes(int64_t samples);

// The probability that at least one of k answers drawn without replacement out of `samples`, of
// which `right` are right, is right: 1 - C(samples - right, k) / C(samples, k), as a product
// (Chen et al. 2021, "Evaluating large language models trained on code", equation 1).
// 0 <= right <= samples, 1 <= k <= samples.
double PassAtK(int64_t samples, int64_t right, int64_t k);

// kResamples samples of `size` answers, drawn with replacement as in verl's bootstrap_metric, but
// with the Philox numbers of (kSeed, stream, draw): use another stream for each prompt and size. An
// index is a 32-bit word times the number of samples over 2^32, so that a sample's probability is
// off by less than samples / 2^32.
class Resampler {
 public:
  static constexpr int64_t kResamples = 1000;
  static constexpr uint64_t kSeed = 42;  // verl's

  // Both counts must be at least 1.
  Resampler(int64_t samples, int64_t size, uint64_t stream);

  // Mean and standard deviation, over the resamples, of the largest or the smallest value in each.
  // `values`: one per sample.
  MeanStd Best(const std::vector<double>& values) const;
  MeanStd Worst(const std::vector<double>& values) const;
  // Mean and standard deviation of the majority answer's value: the value of the first draw with
  // the most frequent answer and, if several are equally frequent, of the one that was drawn first
  // (verl's calc_maj_val). `answers`: one per sample, 0 <= answer < samples, equal for equal
  // answers.
  MeanStd Majority(const std::vector<double>& values, const std::vector<int64_t>& answers) const;

  // The indices of the drawn samples, resample after resample: [kResamples * size].
  const std::vector<int32_t>& draws() const { return draws_; }

 private:
  const size_t size_;
  std::vector<int32_t> draws_;
};

// The scored answers to one prompt, in order of sample.
struct ValidationPrompt {
  std::string data_source;
  uint64_t data_row = 0;  // seeds the resampling; differs between prompts
  int64_t samples = 0;    // 1 to 4096
  // One value per sample, or fewer if the reward function did not return the key for all of them.
  std::map<std::string, std::vector<double>> values;  // "reward" and the function's further keys
  // The parsed answer of each sample. With fewer than `samples`, there is no majority vote.
  std::vector<std::string> predictions;
};

struct ValidationResult {
  // The metrics of a validation pass under verl's names (verl process_validation_metrics).
  // <section>/<data source>/<key>/<metric>: means over the source's prompts of each prompt's
  //   mean@N, std@N                           over its N samples;
  //   best@k, worst@k, maj@k /mean and /std   over 1000 resamples of k of them (Resampler);
  //   pass@k                                  PassAtK, where a value of at least 1 is correct;
  // for each k of SubsetSizes(N). The section is val-core for mean, best, maj and pass @N of the
  // key acc, or of reward if there is no acc; val-aux for everything else.
  std::map<std::string, double> metrics;
  // Keys without metrics, because some sample of the source has no value: "<source>: <key>".
  std::vector<std::string> incomplete;
};

ValidationResult SummarizeValidation(const std::vector<ValidationPrompt>& prompts);

}  // namespace tandem
