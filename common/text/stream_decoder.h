// Decoding of a response while it is being generated.
#pragma once

#include <cstdint>
#include <string>

#include "common/text/tokenizer.h"

namespace tandem {

// Returns only whole characters and never takes text back, so that stop strings can be matched as
// tokens arrive. All returned pieces together equal Tokenizer::Decode of all ids. Not thread-safe;
// the tokenizer must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(&tokenizer),
        assembler_(tokenizer.decoder_),
        skip_special_tokens_(skip_special_tokens) {}

  // The text that this token made certain, often "" in the middle of a character.
  std::string Push(int32_t id) {
    const TokenPiece* piece = tokenizer_->PieceOf(id, skip_special_tokens_);
    return piece == nullptr ? std::string() : assembler_.Push(*piece);
  }

  // At the end of the response: an unfinished character becomes U+FFFD.
  std::string Finish() { return assembler_.Finish(); }

  // Whether bytes of an unfinished character are held back.
  bool has_pending() const { return assembler_.has_pending(); }

 private:
  const Tokenizer* tokenizer_;
  PieceAssembler assembler_;
  bool skip_special_tokens_;
};

}  // namespace tandem
