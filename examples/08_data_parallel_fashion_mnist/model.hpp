// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A stack of dense layers with ReLU between and softmax at the end: one layer is softmax regression, two are an MLP.
// Independent of ranks: backward() calls a function as soon as a layer's gradient is complete.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <random>
#include <vector>

#include "data.hpp"

namespace fashion {

struct layer {
    matrix weights, d_weights, weights_speed;
    Eigen::VectorXf bias, d_bias, bias_speed;
    matrix input; // of the last forward pass

    layer(int inputs, int outputs)
        : weights(matrix::Zero(outputs, inputs)), d_weights(weights), weights_speed(weights),
          bias(Eigen::VectorXf::Zero(outputs)), d_bias(bias), bias_speed(bias) {}

    void descend(float rate, float momentum) {
        weights_speed = momentum * weights_speed + d_weights;
        bias_speed = momentum * bias_speed + d_bias;
        weights -= rate * weights_speed;
        bias -= rate * bias_speed;
    }
};

class network {
public:
    explicit network(const std::vector<int>& widths) {
        for (std::size_t i = 0; i + 1 < widths.size(); ++i) layers_.emplace_back(widths[i], widths[i + 1]);
    }
    std::vector<layer>& layers() { return layers_; }

    void initialise(unsigned seed) {
        std::mt19937 random(seed);
        for (auto& l : layers_) {
            std::normal_distribution<float> normal(0, std::sqrt(2.0f / static_cast<float>(l.weights.cols())));
            l.weights = l.weights.unaryExpr([&](float) { return normal(random); });
        }
    }

    // Returns logits, one column per image.
    const matrix& forward(matrix images) {
        layers_.front().input = std::move(images);
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            auto& l = layers_[i];
            matrix& to = i + 1 < layers_.size() ? layers_[i + 1].input : logits_;
            to.noalias() = l.weights * l.input;
            to.colwise() += l.bias;
            if (i + 1 < layers_.size()) to = to.cwiseMax(0.0f);
        }
        return logits_;
    }

    // Computes gradients and loss, summed over the images of the last forward pass. Calls ready(layer) as soon as a
    // layer's gradient is complete, for the last layer first.
    template <class Label, class Ready>
    double backward(const Label& label, Ready&& ready) {
        matrix delta = logits_;
        double loss = 0;
        for (Eigen::Index c = 0; c < delta.cols(); ++c) {
            auto column = delta.col(c);
            column.array() -= column.maxCoeff();
            column = column.array().exp();
            column /= column.sum();
            const int right = label(static_cast<int>(c));
            loss -= std::log(static_cast<double>(column(right)) + 1e-12);
            column(right) -= 1;
        }
        for (std::size_t i = layers_.size(); i-- > 0;) {
            auto& l = layers_[i];
            l.d_weights.noalias() = delta * l.input.transpose();
            l.d_bias = delta.rowwise().sum();
            ready(l);
            if (i == 0) break;
            matrix back = l.weights.transpose() * delta;
            delta = (l.input.array() > 0).select(back, 0.0f);
        }
        return loss;
    }

    int count_right(const matrix& logits, const auto& label) const {
        int right = 0;
        for (Eigen::Index c = 0; c < logits.cols(); ++c) {
            Eigen::Index best = 0;
            logits.col(c).maxCoeff(&best);
            right += static_cast<int>(best) == label(static_cast<int>(c));
        }
        return right;
    }

private:
    std::vector<layer> layers_;
    matrix logits_;
};

} // namespace fashion
