#include "common/jagged/response_rows.h"

namespace tandem {

absl::Status CheckWindows(const std::vector<int64_t>& offsets,
                          const std::vector<ResponseWindow>& windows) {
  if (offsets.size() != windows.size() + 1) {
    return InvalidArgument("{} windows for {} rows", windows.size(), offsets.size() - 1);
  }
  for (size_t row = 0; row < windows.size(); ++row) {
    const auto [prompt, response] = windows[row];
    const auto window = MakeResponseWindow(prompt, response);
    if (!window.ok()) return Annotate(window.status(), fmt::format("row {}", row));
    const int64_t tokens = offsets[row + 1] - offsets[row];
    if (tokens != window->sequence_tokens()) {
      return InvalidArgument("row {} has {} tokens, but prompt and response have {} + {}", row,
                             tokens, prompt, response);
    }
  }
  return absl::OkStatus();
}

void PadPackedInputs(int64_t pad_size, int64_t pad_value, PackedInputs& inputs) {
  for (int64_t i = 0; i < pad_size; ++i) {
    inputs.input_ids.push_back(pad_value);
    inputs.position_ids.push_back(i);
  }
}

}  // namespace tandem
