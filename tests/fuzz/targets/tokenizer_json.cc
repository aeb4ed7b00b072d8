// A tokenizer.json, and a few texts through it.
#include "common/text/tokenizer.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(tokenizer_json) {
  const auto loaded = tandem::Tokenizer::FromJson(std::string(input), "tokenizer.json");
  if (!loaded.ok()) return;
  for (const char* text : {"", "Hello, world! 123\n\t  x", "e\xCC\x81\xE2\x80\x8D\xF0\x9F\x98\x80",
                           "<s> low lower</s>", "no \xFF UTF-8"}) {
    const auto ids = (*loaded)->Encode(text, true);
    if (ids.ok()) (void)(*loaded)->Decode(*ids, false);
  }
}
