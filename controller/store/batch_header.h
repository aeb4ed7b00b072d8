// The JSON of a saved batch's header, and back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/store/saved_batch.h"

namespace tandem {

// Where an array lies.
struct BatchPlace {
  uint64_t offset = 0;  // from the start of the file
  uint64_t count = 0;   // values
};

struct BatchEntry {
  SavedSample meta;                          // without arrays
  std::map<std::string, BatchPlace> arrays;  // by name; empty ones are left out
};

struct BatchHeader {
  SavedBatchInfo info;
  std::vector<BatchEntry> entries;
};

// Gives their memory back too.
SavedSample WithoutArrays(SavedSample sample);

// Texts that are no UTF-8 get replacement characters; a number that is not finite is a string.
std::string BatchHeaderToJson(const SavedBatchInfo& info, const std::vector<BatchEntry>& entries);

// DataLoss: no JSON, or not this one. Places are not checked here.
absl::StatusOr<BatchHeader> BatchHeaderFromJson(const char* text, size_t bytes);

// stop, length, aborted; "none" where a response has not ended.
std::string FinishReasonName(FinishReason reason);

}  // namespace tandem
