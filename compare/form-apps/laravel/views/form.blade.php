@extends('layout')
@section('content')<form method="POST" action="{{ $action }}">@csrf<input name="text" value="{{ old('text') }}"><button>Send</button></form>@endsection
