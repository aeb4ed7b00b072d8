// Text for a terminal: how many columns it takes, and without anything that would steer it.
#pragma once

#include <cstddef>
#include <string>

namespace tandem {

// The terminal columns of a text in UTF-8: East Asian wide characters take two, combining marks
// none.
size_t ColumnsOf(const std::string& text);

// The beginning of `text` that fits into `columns`; if any of it is left out, the last column is
// "…".
std::string CutToColumns(const std::string& text, size_t columns);

// The text on one line, truncated to `width` code points (0: not truncated). What a terminal would
// obey becomes an escape: control characters (\n, \x1b), characters that change the direction of
// text or take no room (\u202e), line separators and bytes that are no UTF-8 (\xff).
std::string OneLine(const std::string& text, size_t width);

// The same of each line of `text`.
std::string Printable(const std::string& text);

}  // namespace tandem
