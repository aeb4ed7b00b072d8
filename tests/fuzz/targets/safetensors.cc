// A weight file: everything that opening it promises holds for every byte of its tensors.
#include "common/formats/safetensors.h"

#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(safetensors) {
  const tandem::fuzz::InputFile file(input);
  const auto opened = tandem::SafetensorsFile::Open(file.path());
  if (!opened.ok()) return;
  uint8_t sum = 0;
  for (const tandem::SafetensorsTensor& tensor : (*opened)->tensors()) {
    const auto view = (*opened)->View(tensor.name);
    if (!view.ok() || tensor.end > input.size()) __builtin_trap();
    const auto* bytes = static_cast<const uint8_t*>(view->data);
    for (uint64_t i = 0; i < tensor.end - tensor.begin; ++i) sum ^= bytes[i];
  }
  static volatile uint8_t sink;
  sink = sum;
}
