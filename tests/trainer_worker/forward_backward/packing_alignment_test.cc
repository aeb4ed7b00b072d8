// The off-by-one and padding mistakes that are known from training systems (verl, padding.py and
// its history), each beside what the packer makes of the same samples: the two must differ, or the
// test proves nothing.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "common/types/response_tokens.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {
namespace {

using AlignedValues = std::vector<double>;
using AlignedLengths = std::vector<std::pair<int64_t, int64_t>>;  // of prompt and response

// Token t of sample i is 100 i + t + 1, which a model is taken to put out at its row as well.
std::vector<Sample> AlignedSamples(const AlignedLengths& lengths) {
  std::vector<Sample> samples;
  for (const auto& [prompt, response] : lengths) {
    Sample sample;
    sample.sample_id = samples.size();
    sample.prompt_tokens = prompt;
    for (int64_t t = 0; t < prompt + response; ++t) {
      sample.tokens.push_back(static_cast<int32_t>(100 * std::ssize(samples) + t + 1));
    }
    sample.segments = {{0, prompt, false, 0}, {prompt, response, true, 0}};
    samples.push_back(std::move(sample));
  }
  return samples;
}

// As AlignedSamples, of one prompt.
std::vector<Sample> AlignedGroup(int64_t prompt, const std::vector<int64_t>& responses) {
  AlignedLengths lengths;
  for (const int64_t response : responses) lengths.emplace_back(prompt, response);
  std::vector<Sample> samples = AlignedSamples(lengths);
  for (Sample& sample : samples) {
    std::copy_n(samples.front().tokens.begin(), prompt, sample.tokens.begin());
  }
  return samples;
}

std::vector<PackedBatch> PackAligned(const std::vector<Sample>& samples,
                                     int64_t max_tokens = 1000,
                                     bool share = true) {
  const auto batches = PackSamples(samples, {.max_tokens = max_tokens,
                                             .max_sequence_tokens = 1000,
                                             .vocab_limit = 10000,
                                             .share_prompts = share});
  INFO(batches.status().ToString());
  REQUIRE(batches.ok());
  return *batches;
}

// The output at the rows that the packer scores, in its order.
AlignedValues PackedOutput(const std::vector<Sample>& samples) {
  AlignedValues values;
  for (const PackedBatch& batch : PackAligned(samples)) {
    for (const int32_t row : batch.scored_rows) {
      values.push_back(batch.tokens[static_cast<size_t>(row)]);
    }
  }
  return values;
}

// The tokens that the packer scores these rows with.
AlignedValues PackedTargets(const std::vector<Sample>& samples) {
  AlignedValues values;
  for (const PackedBatch& batch : PackAligned(samples)) {
    values.insert(values.end(), batch.targets.begin(), batch.targets.end());
  }
  return values;
}

// All tokens, one sample behind the other.
AlignedValues StreamOf(const std::vector<Sample>& samples) {
  AlignedValues stream;
  for (const Sample& sample : samples) {
    stream.insert(stream.end(), sample.tokens.begin(), sample.tokens.end());
  }
  return stream;
}

// Of a stream, for each sample its entries [end - response - shift, end - shift), where 1 is right.
AlignedValues ShiftedBy(const std::vector<Sample>& samples,
                        const AlignedValues& stream,
                        int64_t shift) {
  AlignedValues values;
  int64_t end = 0;
  for (const Sample& sample : samples) {
    end += std::ssize(sample.tokens);
    for (int64_t at = end - shift - sample.response_tokens(); at < end - shift; ++at) {
      values.push_back(stream[static_cast<size_t>((at + std::ssize(stream)) % std::ssize(stream))]);
    }
  }
  return values;
}

// Samples in rows of `columns`, sample i from column begin[i] on; its first response tokens of the
// old slice of columns, [:, -width - 1 : -1].
AlignedValues ColumnsBeforeTheEnd(const std::vector<Sample>& samples,
                                  int64_t columns,
                                  const std::vector<int64_t>& begin,
                                  int64_t width,
                                  double padding) {
  AlignedValues values;
  for (size_t i = 0; i < samples.size(); ++i) {
    AlignedValues row(static_cast<size_t>(columns), padding);
    std::copy(samples[i].tokens.begin(), samples[i].tokens.end(), row.begin() + begin[i]);
    const auto slice = row.end() - width - 1;
    values.insert(values.end(), slice, slice + samples[i].response_tokens());
  }
  return values;
}

TEST_CASE("Slicing fixed columns takes padding where rows are aligned left",
          "[packing][alignment]") {
  const auto samples = AlignedSamples({{2, 3}, {4, 5}, {1, 4}});
  const AlignedValues wrong = ColumnsBeforeTheEnd(samples, 9, {0, 0, 0}, 5, -1);
  REQUIRE(std::count(wrong.begin(), wrong.end(), -1.0) > 0);  // the padding's
  REQUIRE(wrong != PackedOutput(samples));
  REQUIRE(PackedOutput(samples) ==
          AlignedValues{2, 3, 4, 104, 105, 106, 107, 108, 201, 202, 203, 204});
}

TEST_CASE("Columns that are right for one alignment or width are wrong for another",
          "[packing][alignment]") {
  const auto samples = AlignedSamples({{10, 40}, {30, 20}, {5, 45}, {40, 10}});
  const std::vector<int64_t> prompts_end_at_40 = {30, 10, 35, 0};
  const AlignedValues right = PackedOutput(samples);
  REQUIRE(ColumnsBeforeTheEnd(samples, 85, prompts_end_at_40, 45, -1) == right);
  REQUIRE(ColumnsBeforeTheEnd(samples, 88, prompts_end_at_40, 45, -1) != right);
  REQUIRE(ColumnsBeforeTheEnd(samples, 85, {0, 0, 0, 0}, 45, -1) != right);
}

TEST_CASE("Ratios of equal policies are 1 only through the same window", "[packing][alignment]") {
  const auto samples = AlignedSamples({{2, 3}, {4, 5}});
  // Log-probs of the model's output; the padding's are 0, as a padded tensor has them.
  const auto log_prob = [](double output) { return output == 0 ? 0 : -0.01 * output - 9; };
  std::map<uint64_t, AlignedValues> old;  // by sample, of its response
  for (const Sample& sample : samples) {
    const ResponseWindow window = WindowOf(sample);
    for (int64_t t = 0; t < window.response_tokens; ++t) {
      old[sample.sample_id].push_back(
          log_prob(sample.tokens[static_cast<size_t>(window.RowOf(t))]));
    }
  }
  const AlignedValues wrong = ColumnsBeforeTheEnd(samples, 9, {0, 0}, 5, 0);
  double largest = 0;
  size_t scored = 0;
  for (const PackedBatch& batch : PackAligned(samples)) {
    for (size_t i = 0; i < batch.targets.size(); ++i, ++scored) {
      const double before = old.at(ScoredSample(batch, samples, i).sample_id)
                                .at(static_cast<size_t>(batch.scored_response[i]));
      const double now = log_prob(batch.tokens[static_cast<size_t>(batch.scored_rows[i])]);
      REQUIRE(std::exp(now - before) == 1.0);
      largest = std::max(largest, std::exp(log_prob(wrong[scored]) - before));
    }
  }
  REQUIRE(scored == wrong.size());
  REQUIRE(largest > 1000);
}

TEST_CASE("Neither limits nor shared prompts change which row scores a token",
          "[packing][alignment]") {
  const auto samples = AlignedGroup(3, {4, 2, 5});
  using Score = std::pair<uint64_t, int32_t>;  // of a sample, the number of its response token
  std::map<Score, std::pair<int32_t, int32_t>> first;
  bool wrong_differs = false;
  for (const bool share : {true, false}) {
    for (const int64_t limit : {8, 9, 1000}) {
      std::map<Score, std::pair<int32_t, int32_t>> scores;  // the row's token, and the target
      for (const PackedBatch& batch : PackAligned(samples, limit, share)) {
        for (size_t i = 0; i < batch.targets.size(); ++i) {
          const Sample& sample = ScoredSample(batch, samples, i);
          const int32_t row = batch.scored_rows[i];
          scores[{sample.sample_id, batch.scored_response[i]}] = {
              batch.tokens[static_cast<size_t>(row)], batch.targets[i]};
          // The row as if the prompt's lay before the sequence's own, wherever they are.
          const auto& sequence = batch.sequences[static_cast<size_t>(batch.scored_sequence[i])];
          const int64_t wrong =
              sequence.first_row + WindowOf(sample).RowOf(batch.scored_response[i]);
          wrong_differs = wrong_differs || wrong != row;
          if (!share) REQUIRE(wrong == row);
        }
      }
      if (first.empty()) first = scores;
      REQUIRE(scores == first);
    }
  }
  REQUIRE(wrong_differs);
  REQUIRE(first.at({1, 0}) == std::pair<int32_t, int32_t>{3, 104});
  REQUIRE(first.at({1, 1}) == std::pair<int32_t, int32_t>{104, 105});
}

TEST_CASE("A response begins with the row of the prompt's last token", "[packing][alignment]") {
  const auto samples = AlignedSamples({{10, 40}, {30, 20}, {5, 45}, {40, 10}});
  for (const PackedBatch& batch : PackAligned(samples)) {
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      const Sample& sample = ScoredSample(batch, samples, i);
      const int64_t last = sample.prompt_tokens + 100 * static_cast<int64_t>(sample.sample_id);
      REQUIRE(batch.tokens[static_cast<size_t>(batch.scored_rows[i])] ==
              last + batch.scored_response[i]);
    }
  }
}

TEST_CASE("Rows shifted by none or two are not the response's", "[packing][alignment]") {
  const auto samples = AlignedSamples({{2, 3}, {4, 5}, {1, 4}});
  const AlignedValues stream = StreamOf(samples);
  REQUIRE(ShiftedBy(samples, stream, 1) == PackedOutput(samples));
  REQUIRE(ShiftedBy(samples, stream, 0) != PackedOutput(samples));
  REQUIRE(ShiftedBy(samples, stream, 2) != PackedOutput(samples));
}

// Labels by rolling the stream of tokens back by one, as engines make them: of samples' last rows
// they are the next sample's first token.
TEST_CASE("Rolled labels are the targets, unless rolled late or read a row later",
          "[packing][alignment]") {
  const auto samples = AlignedSamples({{2, 3}, {4, 5}, {1, 4}});
  const AlignedValues targets = PackedTargets(samples);
  AlignedValues labels = StreamOf(samples);
  std::rotate(labels.begin(), labels.begin() + 1, labels.end());
  REQUIRE(ShiftedBy(samples, labels, 1) == targets);
  REQUIRE(ShiftedBy(samples, labels, 0) != targets);
  REQUIRE(labels[4] == 101);
  // Rolled after the stream was cut in two, a row within a window gets a wrong label.
  const auto rolled_after_cut_at = [&](int64_t cut) {
    AlignedValues late = StreamOf(samples);
    std::rotate(late.begin(), late.begin() + 1, late.begin() + cut);
    std::rotate(late.begin() + cut, late.begin() + cut + 1, late.end());
    return ShiftedBy(samples, late, 1);
  };
  REQUIRE(rolled_after_cut_at(7) == targets);  // in a prompt
  REQUIRE(rolled_after_cut_at(11) != targets);
  // Rolled after packing, which drops the last token's row, a response ends with another's token.
  const PackedBatch packed = PackAligned(samples).front();
  AlignedValues wrong;
  for (const int32_t row : packed.scored_rows) {
    wrong.push_back(packed.tokens[static_cast<size_t>(row + 1) % packed.tokens.size()]);
  }
  REQUIRE(wrong[2] == 101);
  REQUIRE(wrong != targets);
}

TEST_CASE("A prompt of no tokens is refused: its window begins in another sequence",
          "[packing][alignment]") {
  const auto samples = AlignedSamples({{2, 3}, {0, 2}, {0, 3}});
  REQUIRE(ShiftedBy(samples, StreamOf(samples), 1)[3] == 5);  // the first sample's
  const auto batches =
      PackSamples(samples, {.max_tokens = 1000, .max_sequence_tokens = 1000, .vocab_limit = 10000});
  REQUIRE(batches.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(batches.status().message())
              .find("sample 0x1 has 2 tokens and claims a prompt of 0") != std::string::npos);
}

// verl 0.9.1, no_padding_2_padding and response_from_nested of the numbers 10, 11, ...: prompts {1,
// 2} with responses {2, 3} give 10, 11 and 14 to 16; {1, 2} with {0, 3} give nothing and 12 to 14;
// {1} with {1} gives 10. With prompts {2, 0} the first raises AssertionError; the second gives 11,
// 12 and, for the second response, 13 to 15, of which 13 is the first sample's last row.
TEST_CASE("Responses are scored by the rows that verl extracts", "[packing][alignment]") {
  const auto rows = [](const AlignedLengths& lengths) {
    std::vector<int64_t> found;
    int64_t begin = 10;
    for (const Sample& sample : AlignedSamples(lengths)) {
      const ResponseWindow window = WindowOf(sample);
      for (int64_t t = 0; t < window.response_tokens; ++t) found.push_back(begin + window.RowOf(t));
      begin += std::ssize(sample.tokens);
    }
    return found;
  };
  REQUIRE(rows({{1, 2}, {2, 3}}) == std::vector<int64_t>{10, 11, 14, 15, 16});
  REQUIRE(rows({{1, 0}, {2, 3}}) == std::vector<int64_t>{12, 13, 14});
  REQUIRE(rows({{1, 1}}) == std::vector<int64_t>{10});
  REQUIRE(rows({{2, 2}, {0, 3}}) == std::vector<int64_t>{11, 12, 13, 14, 15});
  const auto refused =
      PackSamples(AlignedSamples({{2, 2}, {0, 3}}),
                  {.max_tokens = 1000, .max_sequence_tokens = 1000, .vocab_limit = 10000});
  REQUIRE(absl::IsInvalidArgument(refused.status()));
  REQUIRE(refused.status().message().find("a prompt of 0") != std::string::npos);
}

TEST_CASE("A response of no tokens scores nothing", "[packing][alignment]") {
  const auto samples = AlignedSamples({{2, 0}, {1, 2}});
  const PackedBatch batch = PackAligned(samples).front();
  REQUIRE(batch.tokens == std::vector<int32_t>{1, 2, 101, 102});
  REQUIRE(batch.scored_rows == std::vector<int32_t>{2, 3});
  REQUIRE(batch.targets == std::vector<int32_t>{102, 103});
}

// Tool output within a response is masked in the loss, but it is there: counting what is trained
// for the response's length moves and cuts the window.
TEST_CASE("Masked holes neither shorten nor move a window", "[packing][alignment]") {
  auto samples = AlignedSamples({{2, 5}, {3, 4}});
  samples[0].segments = {{0, 2, false, 0}, {2, 1, true, 0}, {3, 2, false, 0}, {5, 2, true, 0}};
  samples[1].segments = {{0, 7, false, 0}};
  AlignedValues wrong;
  for (const Sample& sample : samples) {
    int64_t counted = 0;
    for (const Segment& segment : sample.segments) counted += segment.trained ? segment.length : 0;
    wrong.insert(wrong.end(), sample.tokens.end() - 1 - counted, sample.tokens.end() - 1);
  }
  REQUIRE(wrong == AlignedValues{4, 5, 6});
  REQUIRE(PackedOutput(samples) == AlignedValues{2, 5, 6});
  REQUIRE(PackedTargets(samples) == AlignedValues{3, 6, 7});
}

TEST_CASE("Positions begin anew with each sequence, behind the prompt that it shares",
          "[packing][alignment]") {
  const auto samples = AlignedGroup(2, {2, 3, 2});
  const PackedBatch batch = PackAligned(samples).front();
  std::vector<int64_t> positions, wrong;  // wrong: each sequence continues the one before
  for (const PackedBatch::Sequence& sequence : batch.sequences) {
    for (int64_t row = 0; row < sequence.rows; ++row) {
      positions.push_back(sequence.prefix_rows + row);
      wrong.push_back(std::ssize(wrong));
      const Sample& sample = samples[static_cast<size_t>(sequence.sample)];
      REQUIRE(batch.tokens[static_cast<size_t>(sequence.first_row + row)] ==
              sample.tokens[static_cast<size_t>(positions.back())]);
    }
  }
  REQUIRE(std::ssize(positions) == batch.rows());
  REQUIRE(positions == std::vector<int64_t>{0, 1, 2, 2, 3, 2});
  REQUIRE(positions != wrong);
}

}  // namespace
}  // namespace tandem
