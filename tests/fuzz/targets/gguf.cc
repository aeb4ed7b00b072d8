// A GGUF file: its header, its tokenizer, its sizes, and the tensors that are small.
#include "common/formats/gguf/gguf_file.h"
#include "common/formats/gguf/gguf_import.h"
#include "common/formats/gguf/gguf_tokenizer.h"
#include "common/model_spec/model_spec.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(gguf) {
  const tandem::fuzz::InputFile file(input);
  const auto opened = tandem::GgufFile::Open(file.path());
  if (!opened.ok()) return;
  (void)tandem::GgufModelSpec(**opened);
  (void)tandem::ConvertGgufTokenizer(**opened);
  for (const tandem::GgufTensor& tensor : (*opened)->tensors()) {
    (void)(*opened)->Dequantize(tensor);
  }
}
