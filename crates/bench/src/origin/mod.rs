//! `microcache origin`: a simulated slow application.
