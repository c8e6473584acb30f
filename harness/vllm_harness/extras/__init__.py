"""Optional packages that build on the core; `vllm_harness._extensions` lists them.

Their error classes, by base class, and the modules that define them:

    HarnessError
        ClusterError, NotRun              cluster.ray_cluster
        HeadFailed                        review.both_sides
        ShippingError                     cluster.shipping
        SuiteError                        cluster.suites.on_node
        NoReferenceError                  weights.check
        NoStandIn                         upstream.stand_ins
        RemoteCallError                   upstream.vllm_process
        UsageError
            BundleError                   bundles.place
            ChatTemplateError             templates.chat_template
            ForeignError                  foreign.foreign
"""
