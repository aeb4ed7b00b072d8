// A saved batch in words and as JSON.
#pragma once

#include <memory>
#include <string>

#include "common/text/tokenizer.h"
#include "controller/store/batch_reader.h"
#include "controller/store/batch_stats.h"

namespace tandem {

struct BatchTexts {
  const Tokenizer* tokenizer = nullptr;  // null: ids alone
  std::string note;                      // why there is none
};

std::string BatchText(const BatchReader& batch, const BatchStats& stats, const BatchTexts& texts);
std::string BatchJson(const BatchReader& batch, const BatchStats& stats, const BatchTexts& texts);

}  // namespace tandem
