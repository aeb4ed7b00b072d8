// A message as JSON, as tandemctl prints it and the dashboard reads it.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace tandem {

// Protobuf's mapping with the names of the .proto files; fields that are 0 or empty are there too,
// 64-bit integers are texts, and numbers that are none are "NaN", "Infinity", "-Infinity".
std::string MessageJson(const google::protobuf::Message& message);

}  // namespace tandem
