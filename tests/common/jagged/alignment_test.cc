// The off-by-one and padding mistakes that are known from training systems (verl, padding.py and
// its history), each beside what is right: they must differ on the input, or the test proves
// nothing.
#include <cmath>

#include <catch2/catch.hpp>

#include "common/jagged/response_rows.h"

namespace tandem {
namespace {

using AlignedValues = std::vector<double>;

// Sequences with these prompts and responses; the output at token t of sequence i is 100 i + t + 1.
struct Batch {
  std::vector<ResponseWindow> windows;
  Jagged<double> output;
};

Batch MakeBatch(const std::vector<ResponseWindow>& windows) {
  Batch batch{.windows = windows, .output = {}};
  for (size_t i = 0; i < windows.size(); ++i) {
    AlignedValues row;
    for (int64_t t = 0; t < windows[i].sequence_tokens(); ++t) {
      row.push_back(static_cast<double>(100 * i) + static_cast<double>(t) + 1);
    }
    batch.output.Append(row);
  }
  return batch;
}

AlignedValues Right(const Batch& batch) {
  return ResponseRows(batch.output, batch.windows)->values;
}

// [values, mask] of a padded batch in which each sequence begins in column `begin`.
struct PaddedBatch {
  Padded<double> values;
  Mask mask;
};

PaddedBatch PadAt(const Batch& batch, int64_t columns, const std::vector<int64_t>& begin) {
  PaddedBatch padded;
  const auto size = static_cast<size_t>(batch.output.rows() * columns);
  padded.values = {
      .rows = batch.output.rows(), .columns = columns, .values = AlignedValues(size, -1)};
  padded.mask = {
      .rows = batch.output.rows(), .columns = columns, .values = std::vector<int64_t>(size, 0)};
  for (int64_t row = 0; row < batch.output.rows(); ++row) {
    const auto values = batch.output.Row(row);
    const auto first = static_cast<size_t>(row * columns + begin[static_cast<size_t>(row)]);
    std::copy(values.begin(), values.end(),
              padded.values.values.begin() + static_cast<int64_t>(first));
    for (size_t i = 0; i < values.size(); ++i) padded.mask.values[first + i] = 1;
  }
  return padded;
}

// Prompts end in column `prompt_columns`.
PaddedBatch PadLeftRight(const Batch& batch, int64_t prompt_columns, int64_t columns) {
  std::vector<int64_t> begin;
  for (const ResponseWindow& window : batch.windows) {
    begin.push_back(prompt_columns - window.prompt_tokens);
  }
  return PadAt(batch, columns, begin);
}

PaddedBatch PadLeftAligned(const Batch& batch, int64_t columns) {
  return PadAt(batch, columns, std::vector<int64_t>(batch.windows.size(), 0));
}

// The old slice of columns, [:, -width - 1 : -1], and then the responses in it.
AlignedValues ColumnsBeforeTheEnd(const PaddedBatch& padded, const Batch& batch, int64_t width) {
  AlignedValues values;
  for (int64_t row = 0; row < padded.values.rows; ++row) {
    for (int64_t t = 0; t < batch.windows[static_cast<size_t>(row)].response_tokens; ++t) {
      const int64_t column = padded.values.columns - width - 1 + t;
      values.push_back(padded.values.At(row, column).front());
    }
  }
  return values;
}

// The rows [end - response - shift, end - shift) of each sequence; the right shift is 1.
AlignedValues RowsShiftedBy(const Batch& batch, int64_t shift) {
  AlignedValues values;
  for (int64_t row = 0; row < batch.output.rows(); ++row) {
    const int64_t end = batch.output.offsets[static_cast<size_t>(row) + 1] - shift;
    const int64_t response = batch.windows[static_cast<size_t>(row)].response_tokens;
    for (int64_t at = end - response; at < end; ++at) {
      const int64_t wrapped = (at + batch.output.tokens()) % batch.output.tokens();
      values.push_back(batch.output.values[static_cast<size_t>(wrapped)]);
    }
  }
  return values;
}

AlignedValues ThroughMask(const PaddedBatch& padded, const std::vector<ResponseWindow>& windows) {
  return ResponseRows(*Unpad(padded.values, padded.mask), windows)->values;
}

TEST_CASE("Slicing fixed columns takes padding where rows are aligned left", "[alignment]") {
  const Batch batch = MakeBatch({{2, 3}, {4, 5}, {1, 4}});
  const PaddedBatch padded = PadLeftAligned(batch, 9);
  const AlignedValues wrong = ColumnsBeforeTheEnd(padded, batch, 5);
  REQUIRE(wrong != Right(batch));
  REQUIRE(std::count(wrong.begin(), wrong.end(), -1.0) > 0);  // the padding's
  REQUIRE(ThroughMask(padded, batch.windows) == Right(batch));
  REQUIRE(Right(batch) == AlignedValues{2, 3, 4, 104, 105, 106, 107, 108, 201, 202, 203, 204});
}

TEST_CASE("Ratios of equal policies are 1 only through the same window", "[alignment]") {
  // Log-probs; the padding's are 0, as a padded tensor has them.
  Batch batch = MakeBatch({{2, 3}, {4, 5}});
  for (double& value : batch.output.values) value = -0.01 * value - 9;
  PaddedBatch padded = PadLeftAligned(batch, 9);
  for (size_t i = 0; i < padded.mask.values.size(); ++i) {
    if (padded.mask.values[i] == 0) padded.values.values[i] = 0;
  }
  const AlignedValues old = Right(batch);
  const AlignedValues wrong = ColumnsBeforeTheEnd(padded, batch, 5);
  double largest = 0;
  for (size_t i = 0; i < old.size(); ++i) largest = std::max(largest, std::exp(wrong[i] - old[i]));
  REQUIRE(largest > 1000);
  const AlignedValues now = ThroughMask(padded, batch.windows);
  for (size_t i = 0; i < old.size(); ++i) REQUIRE(std::exp(now[i] - old[i]) == 1.0);
}

TEST_CASE("Left, left-right and wider padding give the same response rows", "[alignment]") {
  const Batch batch = MakeBatch({{10, 40}, {30, 20}, {5, 45}, {40, 10}});
  REQUIRE(ThroughMask(PadLeftAligned(batch, 100), batch.windows) == Right(batch));
  for (const int64_t prompt_columns : {40, 41, 64}) {
    const PaddedBatch padded = PadLeftRight(batch, prompt_columns, prompt_columns + 45 + 3);
    REQUIRE(*WindowsOf(padded.mask, prompt_columns) == batch.windows);
    REQUIRE(ThroughMask(padded, batch.windows) == Right(batch));
  }
  // Columns that are right for one alignment are wrong for the other.
  const PaddedBatch left_right = PadLeftRight(batch, 40, 85);
  REQUIRE(ColumnsBeforeTheEnd(left_right, batch, 45) == Right(batch));
  REQUIRE(ColumnsBeforeTheEnd(PadLeftAligned(batch, 85), batch, 45) != Right(batch));
  REQUIRE(ColumnsBeforeTheEnd(PadLeftRight(batch, 40, 88), batch, 45) != Right(batch));
  // Prompts counted in a batch that is aligned left swallow responses.
  REQUIRE(*WindowsOf(PadLeftAligned(batch, 85).mask, 40) != batch.windows);
}

TEST_CASE("A response begins with the row of the prompt's last token", "[alignment]") {
  const Batch batch = MakeBatch({{10, 40}, {30, 20}, {5, 45}, {40, 10}});
  const auto padded = PaddedResponseRows(batch.output, batch.windows, 45);
  for (int64_t row = 0; row < 4; ++row) {
    const ResponseWindow& window = batch.windows[static_cast<size_t>(row)];
    for (int64_t t = 0; t < window.response_tokens; ++t) {
      REQUIRE(padded->At(row, t).front() ==
              static_cast<double>(100 * row + window.prompt_tokens + t));
    }
    if (window.response_tokens < 45) REQUIRE(padded->At(row, 44).front() == 0.0);
  }
}

TEST_CASE("Rows shifted by none or two are not the response's", "[alignment]") {
  const Batch batch = MakeBatch({{2, 3}, {4, 5}, {1, 4}});
  REQUIRE(RowsShiftedBy(batch, 1) == Right(batch));
  REQUIRE(RowsShiftedBy(batch, 0) != Right(batch));
  REQUIRE(RowsShiftedBy(batch, 2) != Right(batch));
}

// Labels by rolling the packed stream back by one, as engines make them: of sequences' last rows
// they are the next sequence's first token.
TEST_CASE("The rolled labels that are wrong lie outside every window", "[alignment]") {
  const Batch batch = MakeBatch({{2, 3}, {4, 5}, {1, 4}});  // tokens, and their own labels
  Jagged<double> labels = batch.output;
  std::rotate(labels.values.begin(), labels.values.begin() + 1, labels.values.end());
  AlignedValues tokens;  // of the responses
  for (int64_t row = 0; row < batch.output.rows(); ++row) {
    const ResponseWindow& window = batch.windows[static_cast<size_t>(row)];
    const auto response =
        batch.output.Slice(row, window.TokenOf(0), window.TokenOf(window.response_tokens));
    tokens.insert(tokens.end(), response.begin(), response.end());
  }
  REQUIRE(ResponseRows(labels, batch.windows)->values == tokens);
  // The slice one later ends with another sequence's token.
  REQUIRE(RowsShiftedBy({batch.windows, labels}, 0) != tokens);
  REQUIRE(labels.Row(0).back() == 101);
  // Rolled after the stream was cut in two, a row within a window gets a wrong label.
  Jagged<double> late = batch.output;
  const auto middle = late.values.begin() + 7;
  std::rotate(late.values.begin(), late.values.begin() + 1, middle);
  std::rotate(middle, middle + 1, late.values.end());
  REQUIRE(ResponseRows(late, batch.windows)->values == tokens);  // the cut is in a prompt
  late = batch.output;
  const auto within = late.values.begin() + 11;
  std::rotate(late.values.begin(), late.values.begin() + 1, within);
  std::rotate(within, within + 1, late.values.end());
  REQUIRE(ResponseRows(late, batch.windows)->values != tokens);
}

TEST_CASE("A prompt of no tokens is refused: its window begins in another sequence",
          "[alignment]") {
  const Batch batch = MakeBatch({{2, 3}, {0, 2}, {0, 3}});
  const AlignedValues wrong = RowsShiftedBy(batch, 1);
  REQUIRE(wrong[3] == 5);  // the first sequence's
  const auto rows = ResponseRows(batch.output, batch.windows);
  REQUIRE(rows.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(rows.status().message()).find("row 1: ") == 0);
  REQUIRE_FALSE(PaddedResponseRows(batch.output, batch.windows, 3).ok());
  REQUIRE_FALSE(MakeResponseWindow(0, 1).ok());
  REQUIRE_FALSE(MakeResponseWindow(1, -1).ok());
  // So is a row without any token.
  REQUIRE_FALSE(WindowsOf({.rows = 2, .columns = 2, .values = {1, 1, 0, 0}}, 1).ok());
}

TEST_CASE("A response of no tokens has no rows", "[alignment]") {
  const Batch batch = MakeBatch({{2, 0}, {1, 2}});
  const auto rows = ResponseRows(batch.output, batch.windows);
  REQUIRE(rows->offsets == std::vector<int64_t>{0, 0, 2});
  REQUIRE(rows->values == AlignedValues{101, 102});
}

// Tool output within a response is masked in the loss, but it is there: counting the mask for the
// response's length moves and cuts the window.
TEST_CASE("Masked holes neither shorten nor move a window", "[alignment]") {
  const Batch batch = MakeBatch({{2, 5}, {3, 4}});
  const Mask trained{.rows = 2, .columns = 5, .values = {1, 0, 0, 1, 1, 0, 0, 0, 0, 0}};
  AlignedValues wrong;
  for (int64_t row = 0; row < 2; ++row) {
    int64_t counted = 0;
    for (int64_t t = 0; t < 5; ++t) counted += trained(row, t) ? 1 : 0;
    const int64_t end = batch.output.length(row) - 1;
    const auto slice = batch.output.Slice(row, end - counted, end);
    wrong.insert(wrong.end(), slice.begin(), slice.end());
  }
  REQUIRE(wrong == AlignedValues{4, 5, 6});
  const auto padded = PaddedResponseRows(batch.output, batch.windows, 5);
  AlignedValues kept;
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t t = 0; t < 5; ++t) {
      if (trained(row, t)) kept.push_back(padded->At(row, t).front());
    }
  }
  REQUIRE(kept == AlignedValues{2, 5, 6});
}

TEST_CASE("Padding behind a packed batch is a sequence of its own", "[alignment]") {
  PackedInputs inputs{.input_ids = {7, 8, 9}, .position_ids = {0, 0, 1}};
  std::vector<int64_t> wrong = inputs.position_ids;
  for (int64_t i = 0; i < 2; ++i) wrong.push_back(wrong.back() + 1);  // continues the last one
  PadPackedInputs(2, 5, inputs);
  REQUIRE(inputs.input_ids == std::vector<int64_t>{7, 8, 9, 5, 5});
  REQUIRE(inputs.position_ids == std::vector<int64_t>{0, 0, 1, 0, 1});
  REQUIRE(inputs.position_ids != wrong);
  PadPackedInputs(-1, 5, inputs);
  REQUIRE(inputs.input_ids.size() == 5);
}

TEST_CASE("A window gives back the response token of a row's successor", "[alignment]") {
  const ResponseWindow window{.prompt_tokens = 3, .response_tokens = 2};
  REQUIRE(window.first_row() == 2);
  REQUIRE(window.end_row() == 4);
  REQUIRE(window.sequence_tokens() == 5);
  REQUIRE(window.ResponseOf(window.TokenOf(1)) == 1);
  REQUIRE(window.RowOf(1) == window.TokenOf(1) - 1);
  REQUIRE(window.ResponseOf(2) == -1);
}

}  // namespace
}  // namespace tandem
