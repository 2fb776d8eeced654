//! Builds the document, one operation at a time.

use std::any::type_name;

use utoipa::{
    ToSchema,
    openapi::{
        ComponentsBuilder, Content, HttpMethod, Info, Object, ObjectBuilder, OpenApi,
        OpenApiBuilder, Paths, Ref, RefOr, Required, Response, ResponseBuilder, Schema, Server,
        path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::Type,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use crate::server::{
    http::{
        auth,
        error::ErrorBody,
        parts::{FromParts, Parts, Schemas},
    },
    messages, ollama,
};

const JSON: &str = "application/json";

/// The document so far.
#[derive(Default)]
pub(super) struct Document {
    paths: Paths,
    schemas: Schemas,
    /// The fields that requests are read from, and the document's fields for them.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests compare them"))]
    pub(super) requests: Vec<Fields>,
    /// Names that several schemas have.
    #[cfg_attr(not(test), allow(dead_code, reason = "a test asserts that there are none"))]
    pub(super) clashes: Vec<String>,
}

/// The fields of one request.
#[cfg_attr(not(test), allow(dead_code, reason = "tests compare them"))]
pub(super) struct Fields {
    pub(super) name: String,
    pub(super) fields: Vec<&'static str>,
    pub(super) properties: Vec<String>,
}

impl Document {
    /// Adds a route that takes a `Q` and answers with an `A`.
    pub(super) fn post<Q: FromParts, A: ToSchema>(&mut self, path: &str, summary: &str) {
        let answer = ResponseBuilder::new().description("Done").content(JSON, self.answer::<A>());
        self.post_for::<Q>(path, summary, answer.build());
    }

    /// Adds the same. With `stream: true` the answer is server-sent events.
    pub(super) fn post_or_stream<Q: FromParts, A: ToSchema>(&mut self, path: &str, summary: &str) {
        let description = "Done, or the output so far, event by event";
        self.post_or_text::<Q, A>(path, summary, description, "text/event-stream");
    }

    /// Adds the same. With `stream: true`, as by default, the answer is lines of JSON.
    pub(super) fn post_or_lines<Q: FromParts, A: ToSchema>(&mut self, path: &str, summary: &str) {
        let description = "Done, or the output so far, line by line";
        self.post_or_text::<Q, A>(path, summary, description, "application/x-ndjson");
    }

    fn post_or_text<Q: FromParts, A: ToSchema>(
        &mut self,
        path: &str,
        summary: &str,
        description: &str,
        media_type: &str,
    ) {
        let text = Content::new(Some(Object::with_type(Type::String)));
        let answer = ResponseBuilder::new()
            .description(description)
            .content(JSON, self.answer::<A>())
            .content(media_type, text);
        self.post_for::<Q>(path, summary, answer.build());
    }

    /// Adds a route that is always refused.
    pub(super) fn absent(&mut self, method: HttpMethod, path: &str, summary: &str) {
        self.add(method, path, summary, OperationBuilder::new());
    }

    /// Adds a route that takes an object of several shapes.
    pub(super) fn post_any<A: ToSchema>(&mut self, path: &str, summary: &str) {
        let body = RequestBodyBuilder::new()
            .content(JSON, Content::new(Some(Object::with_type(Type::Object))))
            .required(Some(Required::True));
        let answer = ResponseBuilder::new().description("Done").content(JSON, self.answer::<A>());
        let operation =
            OperationBuilder::new().request_body(Some(body.build())).response("200", answer);
        self.add(HttpMethod::Post, path, summary, operation);
    }

    /// Adds a route without a body that changes the server's state.
    pub(super) fn command<A: ToSchema>(
        &mut self,
        path: &str,
        summary: &str,
        parameters: Vec<Parameter>,
    ) {
        let answer = ResponseBuilder::new().description("Done").content(JSON, self.answer::<A>());
        let operation = OperationBuilder::new().parameters(Some(parameters));
        self.add(HttpMethod::Post, path, summary, operation.response("200", answer));
    }

    /// Adds a route that answers with an `A`.
    pub(super) fn get<A: ToSchema>(&mut self, path: &str, summary: &str) {
        self.get_with::<A>(path, summary, Vec::new());
    }

    /// Adds a route that answers with an `A`, which depends on these parameters.
    pub(super) fn get_with<A: ToSchema>(
        &mut self,
        path: &str,
        summary: &str,
        parameters: Vec<Parameter>,
    ) {
        let answer = ResponseBuilder::new().description("Done").content(JSON, self.answer::<A>());
        let operation = OperationBuilder::new().parameters(Some(parameters));
        self.add(HttpMethod::Get, path, summary, operation.response("200", answer));
    }

    /// Adds a route about one of several objects.
    pub(super) fn one_of<A: ToSchema>(&mut self, method: HttpMethod, path: &str, summary: &str) {
        let id = ParameterBuilder::new()
            .name("id")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(Object::with_type(Type::String)));
        let answer = ResponseBuilder::new().description("Done");
        let answer = answer.content(JSON, self.answer::<A>());
        let operation = OperationBuilder::new().parameter(id).response("200", answer);
        self.add(method, path, summary, operation);
    }

    /// Adds a route that answers with server-sent events.
    pub(super) fn get_events(&mut self, path: &str, summary: &str) {
        let events = Content::new(Some(Object::with_type(Type::String)));
        let answer = ResponseBuilder::new()
            .description("Events, as they come")
            .content("text/event-stream", events);
        self.add(HttpMethod::Get, path, summary, OperationBuilder::new().response("200", answer));
    }

    /// Adds a route that becomes a WebSocket. Its events are described in the book.
    pub(super) fn get_web_socket(&mut self, path: &str, summary: &str) {
        let switched = Response::new("The connection is a WebSocket from now on");
        self.add(HttpMethod::Get, path, summary, OperationBuilder::new().response("101", switched));
    }

    /// Adds a route that answers with text.
    pub(super) fn get_text(&mut self, path: &str, media_type: &str, summary: &str) {
        let text = Content::new(Some(Object::with_type(Type::String)));
        let answer = ResponseBuilder::new().description("Done").content(media_type, text);
        self.add(HttpMethod::Get, path, summary, OperationBuilder::new().response("200", answer));
    }

    /// Adds a route that answers 200 with an empty body, or 503.
    pub(super) fn probe(&mut self, method: HttpMethod, path: &str, summary: &str) {
        let no = Content::new(Some(
            ObjectBuilder::new().property("status", Object::with_type(Type::String)),
        ));
        let operation = OperationBuilder::new()
            .response("200", Response::new("Yes"))
            .response("503", ResponseBuilder::new().description("No").content(JSON, no));
        self.add(method, path, summary, operation);
    }

    /// Returns the whole document.
    pub(super) fn finish(self, root_path: &str) -> OpenApi {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = ComponentsBuilder::new()
            .schemas_from_iter(self.schemas)
            .security_scheme("key", SecurityScheme::Http(bearer));
        let mut info = Info::new("Playhouse", env!("CARGO_PKG_VERSION"));
        info.description = Some(
            "OpenAI's API with vLLM's extensions. Fields that are not listed are ignored."
                .to_owned(),
        );
        let url = if root_path.is_empty() { "/" } else { root_path };
        OpenApiBuilder::new()
            .info(info)
            .servers(Some([Server::new(url)]))
            .paths(self.paths)
            .components(Some(components.build()))
            .build()
    }

    fn post_for<Q: FromParts>(&mut self, path: &str, summary: &str, answer: Response) {
        let body = RequestBodyBuilder::new()
            .content(JSON, Content::new(Some(self.request::<Q>())))
            .required(Some(Required::True));
        let operation =
            OperationBuilder::new().request_body(Some(body.build())).response("200", answer);
        self.add(HttpMethod::Post, path, summary, operation);
    }

    fn add(&mut self, method: HttpMethod, path: &str, summary: &str, operation: OperationBuilder) {
        let error = |description: &str, schema: RefOr<Schema>| {
            ResponseBuilder::new()
                .description(description)
                .content(JSON, Content::new(Some(schema)))
        };
        let has_own_shape = messages::is_ours(path) || ollama::is_ours(path);
        let refused = match path {
            path if messages::is_ours(path) => self.component::<messages::ErrorBody<'static>>(),
            path if ollama::is_ours(path) => self.component::<ollama::ErrorBody<'static>>(),
            _ => self.component::<ErrorBody<'static>>(),
        };
        let refused = error("Refused, or failed", reference(refused));
        let mut operation = operation.summary(Some(summary)).response("default", refused);
        if !auth::is_open(path, true) {
            let no_scopes: [&str; 0] = [];
            operation = operation.security(SecurityRequirement::new("key", no_scopes));
            if !has_own_shape {
                let flat = ObjectBuilder::new().property("error", Object::with_type(Type::String));
                operation = operation.response("401", error("No key, or a wrong one", flat.into()));
            }
        }
        self.paths.add_path_operation(path, vec![method], operation.build());
    }

    /// Returns the schema of a request: all fields of all of its parts.
    fn request<Q: FromParts>(&mut self) -> RefOr<Schema> {
        let name = name_of::<Q>();
        let mut schemas = Schemas::new();
        let object = Q::Parts::schema(&mut schemas);
        let properties = object.properties.keys().cloned().collect();
        let fields = Q::Parts::fields();
        self.requests.push(Fields { name: name.clone(), fields, properties });
        schemas.push((name.clone(), object.into()));
        self.take(schemas);
        reference(name)
    }

    fn answer<A: ToSchema>(&mut self) -> Content {
        Content::new(Some(reference(self.component::<A>())))
    }

    fn component<T: ToSchema>(&mut self) -> String {
        let name = T::name().into_owned();
        let mut schemas = Schemas::new();
        T::schemas(&mut schemas);
        schemas.push((name.clone(), T::schema()));
        self.take(schemas);
        name
    }

    fn take(&mut self, schemas: Schemas) {
        for (name, schema) in schemas {
            match self.schemas.iter().find(|(known, _)| *known == name) {
                None => self.schemas.push((name, schema)),
                Some((_, known)) if *known == schema => {}
                Some(_) => self.clashes.push(name),
            }
        }
    }
}

fn reference(name: String) -> RefOr<Schema> {
    Ref::from_schema_name(name).into()
}

/// Returns the last word of a type's path.
fn name_of<T>() -> String {
    let path = type_name::<T>();
    path.rsplit("::").next().unwrap_or(path).to_owned()
}
