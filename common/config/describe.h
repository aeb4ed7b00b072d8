// What describe.cc and describe_verl.cc share.
#pragma once

#include <string>

namespace tandem {

// `text` for a cell of a Markdown table.
std::string MarkdownCell(std::string text);

// `tandemctl config explain` for a key that the schema does not have and verl has; "" for any
// other.
std::string ExplainVerlKey(const std::string& key);

}  // namespace tandem
