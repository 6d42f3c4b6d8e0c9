// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Holds a mutex of the system. (std::mutex includes <string> in libstdc++, which every .cu file would pay for.)
#pragma once

#include <pthread.h>

#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class locked_mutex {
public:
    explicit locked_mutex(pthread_mutex_t& m) : m_(m) { ::pthread_mutex_lock(&m_); }
    ~locked_mutex() { ::pthread_mutex_unlock(&m_); }
    locked_mutex(const locked_mutex&) = delete;
    locked_mutex& operator=(const locked_mutex&) = delete;

private:
    pthread_mutex_t& m_;
};

} // namespace detail
COLLX_END_NAMESPACE
