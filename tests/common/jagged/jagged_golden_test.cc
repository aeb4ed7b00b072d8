// Conversions between padded and jagged batches against the reference implementation's.
#include <catch2/catch.hpp>

#include "common/jagged/response_rows.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"

namespace tandem {
namespace {

using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;
using testing::ParseTensor;

// Numbers are only copied, so double holds what any of the types does.
template <typename T>
Padded<T> ReadPadded(const Json& json) {
  const GoldenTensor tensor = ParseTensor(json);
  Padded<T> padded{.rows = tensor.shape.at(0), .columns = tensor.shape.at(1)};
  if (tensor.shape.size() > 2) padded.width = tensor.shape.at(2);
  padded.values = {tensor.values.begin(), tensor.values.end()};
  return padded;
}

Jagged<double> ReadJagged(const Json& json, std::vector<int64_t> offsets) {
  const GoldenTensor tensor = ParseTensor(json);
  Jagged<double> jagged{.values = tensor.values, .offsets = std::move(offsets)};
  if (tensor.shape.size() > 1) jagged.width = tensor.shape.at(1);
  return jagged;
}

template <typename T>
void RequireCopied(const Json& json, const std::vector<T>& got, const std::vector<int64_t>& shape) {
  const GoldenTensor want = ParseTensor(json);
  REQUIRE(want.shape == shape);
  REQUIRE(want.values == std::vector<double>(got.begin(), got.end()));
}

template <typename T>
void RequirePadded(const Json& json, const Padded<T>& got) {
  std::vector<int64_t> shape = {got.rows, got.columns};
  if (got.width > 1) shape.push_back(got.width);
  RequireCopied(json, got.values, shape);
}

std::vector<int64_t> ReadLengths(const Json& json) { return json.get<std::vector<int64_t>>(); }

std::vector<ResponseWindow> ReadWindows(const std::vector<int64_t>& tokens,
                                        const std::vector<int64_t>& responses) {
  std::vector<ResponseWindow> windows;
  for (size_t row = 0; row < responses.size(); ++row) {
    windows.push_back({tokens.at(row) - responses[row], responses[row]});
  }
  return windows;
}

std::vector<int64_t> LengthsOf(const std::vector<int64_t>& offsets) {
  std::vector<int64_t> lengths;
  for (size_t row = 1; row < offsets.size(); ++row) {
    lengths.push_back(offsets[row] - offsets[row - 1]);
  }
  return lengths;
}

template <typename T>
bool JaggedAnswered(const GoldenCase& c, const absl::StatusOr<T>& result) {
  INFO(result.status().ToString());
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return false;
  }
  REQUIRE(result.ok());
  return true;
}

void CheckPositionIds(const GoldenFamily&, const GoldenCase& c) {
  const auto ids = PositionIds(ReadPadded<int64_t>(c.inputs.at("attention_mask")));
  if (JaggedAnswered(c, ids)) RequirePadded(c.outputs.at("position_ids"), *ids);
}

void CheckUnpad(const GoldenFamily&, const GoldenCase& c) {
  const Mask attention = ReadPadded<int64_t>(c.inputs.at("attention_mask"));
  const auto ids = Unpad(ReadPadded<int64_t>(c.inputs.at("input_ids")), attention);
  if (!JaggedAnswered(c, ids)) return;
  const Json& want = c.outputs;
  RequireCopied(want.at("input_ids_values"), ids->values, {ids->tokens()});
  RequireCopied(want.at("offsets"), ids->offsets, {ids->rows() + 1});
  const auto positions = Unpad(ReadPadded<int64_t>(c.inputs.at("position_ids")), attention);
  REQUIRE(positions.ok());
  RequireCopied(want.at("position_ids_values"), positions->values, {positions->tokens()});
  const auto places = KeptPlaces(attention);
  REQUIRE(places.ok());
  RequireCopied(want.at("indices"), *places, {std::ssize(*places)});
  const Mask response_mask = ReadPadded<int64_t>(c.inputs.at("response_mask"));
  RequirePadded(want.at("loss_mask"), response_mask);
  REQUIRE(want.at("max_seq_len").get<int64_t>() == attention.columns);
  REQUIRE(want.at("max_response_len").get<int64_t>() == response_mask.columns);
}

void CheckPaddedResponses(const GoldenFamily&, const GoldenCase& c) {
  std::vector<ResponseWindow> windows;
  int64_t columns = -1;
  if (c.options.at("prompts") == "padded") {
    const auto counted = WindowsOf(ReadPadded<int64_t>(c.inputs.at("attention_mask")),
                                   c.inputs.at("prompt_width").get<int64_t>());
    if (!counted.ok()) {
      JaggedAnswered(c, counted);
      return;
    }
    windows = *counted;
    columns = c.inputs.at("response_width").get<int64_t>();
  } else {
    const auto prompts = ReadLengths(c.inputs.at("prompt_lens"));
    const auto responses = ReadLengths(c.inputs.at("response_lens"));
    for (size_t row = 0; row < prompts.size(); ++row) {
      windows.push_back({prompts[row], responses.at(row)});
    }
    const Json& longest = c.options.at("max_response_len");
    if (!longest.is_null()) columns = longest.get<int64_t>();
  }
  std::vector<int64_t> tokens;
  for (const ResponseWindow& window : windows) tokens.push_back(window.sequence_tokens());
  const auto padded =
      PaddedResponseRows(ReadJagged(c.inputs.at("values"), OffsetsOf(tokens)), windows, columns);
  if (JaggedAnswered(c, padded)) RequirePadded(c.outputs.at("value"), *padded);
}

void RequireJagged(const Json& outputs, const Jagged<double>& got) {
  std::vector<int64_t> shape = {got.tokens()};
  if (got.width > 1) shape.push_back(got.width);
  RequireCopied(outputs.at("values"), got.values, shape);
  RequireCopied(outputs.at("offsets"), got.offsets, {got.rows() + 1});
}

void CheckResponseRows(const GoldenFamily&, const GoldenCase& c) {
  const std::vector<int64_t> offsets = ParseTensor(c.inputs.at("offsets")).Ints();
  const auto windows = ReadWindows(LengthsOf(offsets), ReadLengths(c.inputs.at("response_lens")));
  const auto responses = ResponseRows(ReadJagged(c.inputs.at("values"), offsets), windows);
  if (JaggedAnswered(c, responses)) RequireJagged(c.outputs, *responses);
}

void CheckUnpadResponses(const GoldenFamily&, const GoldenCase& c) {
  const auto responses = UnpadResponses(ReadPadded<double>(c.inputs.at("values")),
                                        ReadLengths(c.inputs.at("response_lens")));
  if (JaggedAnswered(c, responses)) RequireJagged(c.outputs, *responses);
}

void CheckAttentionMask(const GoldenFamily&, const GoldenCase& c) {
  const Json& columns = c.options.at("max_seq_len");
  RequirePadded(c.outputs.at("mask"),
                AttentionMask(ParseTensor(c.inputs.at("offsets")).Ints(),
                              columns.is_null() ? -1 : columns.get<int64_t>()));
}

void CheckPadPacked(const GoldenFamily&, const GoldenCase& c) {
  PackedInputs inputs{.input_ids = ParseTensor(c.inputs.at("input_ids")).Ints(),
                      .position_ids = ParseTensor(c.inputs.at("position_ids")).Ints()};
  PadPackedInputs(c.options.at("pad_size").get<int64_t>(), c.options.at("pad_value").get<int64_t>(),
                  inputs);
  const std::vector<int64_t> shape = {1, std::ssize(inputs.input_ids)};
  RequireCopied(c.outputs.at("input_ids"), inputs.input_ids, shape);
  RequireCopied(c.outputs.at("position_ids"), inputs.position_ids, shape);
}

TEST_CASE("Conversions between padded and jagged batches equal the golden ones", "[golden]") {
  RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "padding_balancing"),
                  {{"compute_position_id_with_mask", CheckPositionIds},
                   {"left_right_2_no_padding", CheckUnpad},
                   {"no_padding_2_padding", CheckPaddedResponses},
                   {"response_from_nested", CheckResponseRows},
                   {"response_to_nested", CheckUnpadResponses},
                   {"build_attention_mask_from_nested", CheckAttentionMask},
                   {"pad_packed_inputs", CheckPadPacked}});
}

}  // namespace
}  // namespace tandem
